#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace lockstep {

/// Reads an environment variable; absent and empty are the same.
std::optional<std::string> environment(const char* name);

/// Reads an environment variable as a whole number; throws InvalidArgument that names it for
/// anything else.
std::optional<std::int64_t> environment_number(const char* name);

}  // namespace lockstep
