#include "lockstep/train/options/precision.h"

namespace lockstep {

const char* name_of(Precision value) {
  if (value == Precision::k32) return "32";
  return value == Precision::kBf16Mixed ? "bf16-mixed" : "16-mixed";
}

}  // namespace lockstep
