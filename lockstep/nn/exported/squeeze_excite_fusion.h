#pragma once

namespace lockstep::nn::exported {

struct GraphParts;

/// Note [Fused squeeze and excitation]
/// A batch norm with an activation or without, the mean of its values over an image, two 1x1
/// convolutions of that with an activation between, sigmoid or hardsigmoid, and the product with
/// the values, as timm and torchvision write them, are one step where the nodes stand one after the
/// other and nothing else reads the values between. Our kernels compute it in training, in fp32
/// (squeeze_excite.h), by default only if there are as many images as threads; in all other cases
/// the nodes do.
void fuse_squeeze_excite(GraphParts& graph);

}  // namespace lockstep::nn::exported
