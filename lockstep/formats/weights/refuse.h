#pragma once

#include <cstdint>
#include <string>

#include "lockstep/core/error.h"

namespace lockstep {

/// Throws the DataError `FILE: offset N: REASON`.
template <typename... Parts>
[[noreturn]] void refuse(const std::string& file, std::uint64_t offset, const Parts&... reason) {
  throw DataError(concat(file, ": offset ", offset, ": ", reason...));
}

}  // namespace lockstep
