#include "lockstep/nn/conv/winograd_loops.h"

namespace lockstep::nn::conv {

const WinogradBuild& winograd_avx512() {
  static constexpr WinogradBuild kBuild = build_of("avx512");
  return kBuild;
}

}  // namespace lockstep::nn::conv
