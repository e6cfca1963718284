#pragma once

namespace lockstep::nn::exported {

struct GraphParts;

/// Note [1x1 convolutions of joined maps]
/// A U-Net's head, and others, convolve 1x1 what was joined of wide maps, some of which were
/// enlarged before. The convolution is the sum of one of each part. Enlarging takes means of
/// pixels, and the convolution sums of channels, so either may come first: where it leaves fewer
/// channels, it does. Neither wide maps of the larger size nor joined ones are then written, nor
/// their gradients.
///
/// Such nodes are one step. Its outputs are those of the nodes but for rounding.
void fuse_joined_maps(GraphParts& graph);

}  // namespace lockstep::nn::exported
