#pragma once

namespace lockstep::nn::exported {

struct GraphParts;

/// Note [Fused steps]
/// A batch norm, an addition or none, and ReLU are one step where nothing else sees the values
/// between them, and so are a batch norm and SiLU or hardswish: our kernel then computes all of it
/// in one pass over memory, in training and where it can (see batch_norm_relu.h); otherwise the
/// step calls one operator after the other. The norm moves behind what computes the addend. This is
/// right if no step that it passes can change what it reads, and none reads or writes its running
/// statistics.
///
/// The norm is called by the dispatcher as before, so rules for operators hold.
///
/// What squeezes and excites a norm's values belongs to its step, too (squeeze_excite_fusion.h).
/// Other steps join an LSTM and its embedding (lstm_fusion.h), or maps and their 1x1 convolution
/// (joined_maps_fusion.h).
///
/// The eight nodes of GPT-2's GELU, one after the other, are one step: gelu(x, "tanh"), but where
/// LibTorch is to compute all. GELU and addmm are computed by our kernels where these can
/// (gelu.h, linear.h).
void fuse(GraphParts& graph);

}  // namespace lockstep::nn::exported
