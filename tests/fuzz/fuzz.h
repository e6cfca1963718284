#pragma once

// What fuzz targets begin with; each is a program of its own.

#include <cstdint>
#include <cstdlib>
#include <string>

#include "lockstep/core/error.h"

namespace lockstep::testing {

/// Ends the program, which the fuzzer reports, unless the condition holds.
inline void require(bool condition) {
  if (!condition) std::abort();
}

inline std::string text_of(const std::uint8_t* data, std::size_t size) {
  return {reinterpret_cast<const char*>(data), size};
}

/// Calls a reader and returns whether it took the input; an Error of this kind refuses it.
template <typename Refusal = DataError, typename Read>
bool is_taken(const Read& read) {
  try {
    read();
    return true;
  } catch (const Refusal&) {
    return false;
  }
}

}  // namespace lockstep::testing
