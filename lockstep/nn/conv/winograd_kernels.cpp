#include "lockstep/nn/conv/winograd_kernel.h"
#include "lockstep/simd/instructions.h"

namespace lockstep::nn::conv {

WinogradBuilds winograd_builds() {
  WinogradBuilds found{{&winograd_plain()}, 1};
  if (runs_avx2()) found.builds[found.count++] = &winograd_avx2();
  if (runs_avx512()) found.builds[found.count++] = &winograd_avx512();
  return found;
}

}  // namespace lockstep::nn::conv
