#include "lockstep/data/transforms/ops/affine_loops.h"

namespace lockstep::data {

const AffineKernel& plain_affine_kernel() {
  static constexpr AffineKernel kKernel{"plain", map_row<bilinear>, map_row<bicubic>};
  return kKernel;
}

}  // namespace lockstep::data
