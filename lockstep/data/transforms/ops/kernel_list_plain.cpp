#include "lockstep/data/transforms/ops/affine.h"
#include "lockstep/data/transforms/ops/resample_kernel.h"

namespace lockstep::data {

std::vector<const ResampleKernel*> resample_kernels() { return {&plain_resample_kernel()}; }

std::vector<const AffineKernel*> affine_kernels() { return {&plain_affine_kernel()}; }

}  // namespace lockstep::data
