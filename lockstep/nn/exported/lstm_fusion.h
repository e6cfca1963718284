#pragma once

namespace lockstep::nn::exported {

struct GraphParts;

/// An LSTM and the embedding of words that it alone reads are one step: where most words stand in
/// the batch several times, its first layer multiplies each of them once (fused/lstm.h).
void fuse_embedded_lstms(GraphParts& graph);

}  // namespace lockstep::nn::exported
