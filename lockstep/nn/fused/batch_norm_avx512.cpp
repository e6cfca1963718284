#include "lockstep/nn/fused/batch_norm_loops.h"

namespace lockstep::nn::fused {

const BatchNormKernel& batch_norm_avx512() {
  static constexpr BatchNormKernel kKernel = batch_norm_build("avx512");
  return kKernel;
}

}  // namespace lockstep::nn::fused
