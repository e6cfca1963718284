#include "lockstep/nn/conv/winograd_loops.h"

namespace lockstep::nn::conv {

const WinogradBuild& winograd_plain() {
  static constexpr WinogradBuild kBuild = build_of("plain");
  return kBuild;
}

}  // namespace lockstep::nn::conv
