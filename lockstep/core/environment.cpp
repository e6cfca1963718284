#include "lockstep/core/environment.h"

#include <cstdlib>

#include "lockstep/core/error.h"
#include "lockstep/core/text.h"

namespace lockstep {

std::optional<std::string> environment(const char* name) {
  const char* value = std::getenv(name);
  if (value == nullptr || *value == '\0') return std::nullopt;
  return std::string(value);
}

std::optional<std::int64_t> environment_number(const char* name) {
  const auto text = environment(name);
  if (!text) return std::nullopt;
  const auto number = parse_number<std::int64_t>(*text);
  check(number.has_value(), "environment: ", name, " must be a whole number: ", *text);
  return number;
}

}  // namespace lockstep
