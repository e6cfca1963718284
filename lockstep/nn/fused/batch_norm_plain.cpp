#include "lockstep/nn/fused/batch_norm_loops.h"

namespace lockstep::nn::fused {

const BatchNormKernel& batch_norm_plain() {
  static constexpr BatchNormKernel kKernel = batch_norm_build("plain");
  return kKernel;
}

}  // namespace lockstep::nn::fused
