#include "lockstep/data/transforms/ops/affine.h"
#include "lockstep/data/transforms/ops/resample_kernel.h"

namespace lockstep::data {

std::vector<const ResampleKernel*> resample_kernels() {
  if (!__builtin_cpu_supports("avx2")) return {&plain_resample_kernel()};
  return {&plain_resample_kernel(), &avx2_resample_kernel()};
}

std::vector<const AffineKernel*> affine_kernels() {
  if (!__builtin_cpu_supports("avx2")) return {&plain_affine_kernel()};
  return {&plain_affine_kernel(), &avx2_affine_kernel()};
}

}  // namespace lockstep::data
