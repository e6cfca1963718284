#include "lockstep/core/environment.h"

#include <charconv>
#include <cstdlib>

#include "lockstep/core/error.h"

namespace lockstep {

std::optional<std::string> environment(const char* name) {
  const char* value = std::getenv(name);
  if (value == nullptr || *value == '\0') return std::nullopt;
  return std::string(value);
}

std::optional<std::int64_t> environment_number(const char* name) {
  const auto text = environment(name);
  if (!text) return std::nullopt;
  std::int64_t number = 0;
  const char* end = text->data() + text->size();
  const auto [stop, error] = std::from_chars(text->data(), end, number);
  check(
      error == std::errc() && stop == end, "environment: ", name,
      " must be a whole number: ", *text);
  return number;
}

}  // namespace lockstep
