#include "lockstep/nn/conv/winograd_loops.h"

namespace lockstep::nn::conv {

const WinogradBuild& winograd_avx2() {
  static constexpr WinogradBuild kBuild = build_of("avx2");
  return kBuild;
}

}  // namespace lockstep::nn::conv
