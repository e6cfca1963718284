#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <string>

namespace lockstep {

/// The largest number of ranks of a world; a larger one, in an environment or elsewhere, is a
/// mistake.
inline constexpr std::int64_t kMostRanks = 1'000'000;

/// Reads an environment variable. An empty one is an InvalidArgument that names it: `RANK=` in a
/// script most likely means that a value was lost.
std::optional<std::string> environment(const char* name);

/// Reads a variable of the system, such as PATH or TERM, of which empty and absent are the same.
std::string system_variable(const char* name);

/// Reads an environment variable as a whole number of that range; throws InvalidArgument that names
/// it, and the range, for anything else.
std::optional<std::int64_t> environment_number(const char* name,
    std::int64_t least = std::numeric_limits<std::int64_t>::min(),
    std::int64_t most = std::numeric_limits<std::int64_t>::max());

/// Does the same for a count, or for the number of a rank.
std::optional<int> environment_count(const char* name, int least = 0);

}  // namespace lockstep
