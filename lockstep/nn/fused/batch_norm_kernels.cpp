#include "lockstep/nn/fused/batch_norm_kernel.h"
#include "lockstep/simd/instructions.h"

namespace lockstep::nn::fused {

BatchNormKernels batch_norm_kernels() {
  BatchNormKernels found{{&batch_norm_plain()}, 1};
  if (runs_avx2()) found.kernels[found.count++] = &batch_norm_avx2();
  if (runs_avx512()) found.kernels[found.count++] = &batch_norm_avx512();
  return found;
}

}  // namespace lockstep::nn::fused
