#include "lockstep/data/transforms/ops/affine.h"
#include "lockstep/data/transforms/ops/resample_kernel.h"

namespace lockstep::data {
namespace {

bool has_avx512() {
  return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("avx512f") &&
         __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") &&
         __builtin_cpu_supports("avx512vl");
}

}  // namespace

std::vector<const ResampleKernel*> resample_kernels() {
  std::vector<const ResampleKernel*> kernels{&plain_resample_kernel()};
  if (__builtin_cpu_supports("avx2")) kernels.push_back(&avx2_resample_kernel());
  if (has_avx512() && __builtin_cpu_supports("avx512vbmi") && __builtin_cpu_supports("avx512vnni"))
    kernels.push_back(&avx512_resample_kernel());
  return kernels;
}

std::vector<const AffineKernel*> affine_kernels() {
  std::vector<const AffineKernel*> kernels{&plain_affine_kernel()};
  if (__builtin_cpu_supports("avx2")) kernels.push_back(&avx2_affine_kernel());
  if (has_avx512()) kernels.push_back(&avx512_affine_kernel());
  return kernels;
}

}  // namespace lockstep::data
