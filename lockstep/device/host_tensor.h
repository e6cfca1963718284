#pragma once

#include <c10/core/TensorOptions.h>

namespace lockstep {

/// Returns the options of a tensor in the host's memory, whatever device is the program's usual
/// one.
inline c10::TensorOptions on_host(c10::ScalarType type) {
  return c10::TensorOptions(type).device(c10::kCPU);
}

}  // namespace lockstep
