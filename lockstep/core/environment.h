#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace lockstep {

/// Reads an environment variable; absent and empty are the same.
std::optional<std::string> environment(const char* name);

/// Reads an environment variable as a whole number; anything else in it is an InvalidArgument that
/// names it.
std::optional<std::int64_t> environment_number(const char* name);

}  // namespace lockstep
