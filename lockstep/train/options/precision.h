#pragma once

namespace lockstep {

/// Says in which types the numbers are computed; parameters and optimizer stay fp32.
enum class Precision {
  k32,
  kBf16Mixed,  ///< autocast to bfloat16
  k16Mixed     ///< autocast to float16, with a GradScaler
};

const char* name_of(Precision value);

}  // namespace lockstep
