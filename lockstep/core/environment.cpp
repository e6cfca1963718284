#include "lockstep/core/environment.h"

#include <cstdlib>

#include "lockstep/core/error.h"
#include "lockstep/core/text.h"

namespace lockstep {

std::optional<std::string> environment(const char* name) {
  const char* value = std::getenv(name);
  if (value == nullptr) return std::nullopt;
  check(*value != '\0', "environment: ", name, " is set, but empty; give it a value, or unset it");
  return std::string(value);
}

std::string system_variable(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

std::optional<std::int64_t> environment_number(
    const char* name, std::int64_t least, std::int64_t most) {
  const auto text = environment(name);
  if (!text) return std::nullopt;
  const auto number = parse_number<std::int64_t>(*text);
  check(number && *number >= least && *number <= most, "environment: ", name,
      " must be a whole number from ", least, " to ", most, ": ", printable(*text));
  return number;
}

std::optional<int> environment_count(const char* name, int least) {
  const auto number = environment_number(name, least, kMostRanks);
  return number ? std::optional(static_cast<int>(*number)) : std::nullopt;
}

}  // namespace lockstep
