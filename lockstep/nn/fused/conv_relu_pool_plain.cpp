#include "lockstep/nn/fused/conv_relu_pool_loops.h"

namespace lockstep::nn::fused {

const ConvReluPoolKernel& conv_relu_pool_plain() {
  static constexpr ConvReluPoolKernel kKernel{
      "plain", forward_scratch, backward_scratch, forward, backward};
  return kKernel;
}

}  // namespace lockstep::nn::fused
