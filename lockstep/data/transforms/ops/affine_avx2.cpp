#include "lockstep/data/transforms/ops/affine_loops.h"

namespace lockstep::data {

const AffineKernel& avx2_affine_kernel() {
  static constexpr AffineKernel kKernel{"avx2", map_row<bilinear>, map_row<bicubic>};
  return kKernel;
}

}  // namespace lockstep::data
