#include "lockstep/nn/fused/conv_relu_pool_loops.h"

namespace lockstep::nn::fused {

const ConvReluPoolKernel& conv_relu_pool_avx512() {
  static constexpr ConvReluPoolKernel kKernel{
      "avx512", forward_scratch, backward_scratch, forward, backward};
  return kKernel;
}

}  // namespace lockstep::nn::fused
