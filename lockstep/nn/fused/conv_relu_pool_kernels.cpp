#include "lockstep/nn/fused/conv_relu_pool_kernel.h"
#include "lockstep/simd/instructions.h"

namespace lockstep::nn::fused {

ConvReluPoolKernels conv_relu_pool_kernels() {
  ConvReluPoolKernels found{{&conv_relu_pool_plain()}, 1};
  if (runs_avx2()) found.kernels[found.count++] = &conv_relu_pool_avx2();
  if (runs_avx512()) found.kernels[found.count++] = &conv_relu_pool_avx512();
  return found;
}

}  // namespace lockstep::nn::fused
