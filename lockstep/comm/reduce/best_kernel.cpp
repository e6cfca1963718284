#include "lockstep/comm/reduce/reduce_kernel.h"
#include "lockstep/simd/instructions.h"

namespace lockstep::reduce {

Kernel best_kernel() {
  static constexpr Kernel kBuilds[] = {reduce_plain, reduce_avx2, reduce_avx512};
  static const Kernel kBest = simd::usable(kBuilds).back();
  return kBest;
}

}  // namespace lockstep::reduce
