#pragma once

#include <exception>
#include <optional>

#include "lockstep/core/error.h"

namespace lockstep {

/// Returns what to say of an exception of LibTorch's that means that memory, of a device or of the
/// host, did not suffice, or that has such a one nested in it: one sentence with the amount, and
/// what helps. Nothing for others.
std::optional<MemoryError> as_memory_error(const std::exception& error);

}  // namespace lockstep
