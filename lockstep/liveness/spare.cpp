#include "lockstep/liveness/spare.h"

#include <cstdlib>

#include "lockstep/core/environment.h"
#include "lockstep/core/error.h"
#include "lockstep/core/file_descriptor.h"

namespace lockstep {
namespace {

void set(const std::string& name, const std::string& value) {
  const int result =
      value.empty() ? ::unsetenv(name.c_str()) : ::setenv(name.c_str(), value.c_str(), 1);
  if (result != 0) throw_errno("spare: set", name);
}

}  // namespace

void wait_if_spare() {
  const auto number = environment_count(kSpareVariable);
  if (!number) return;
  const std::string text =
      read_to_end(FileDescriptor(*number), "spare: read what the launcher writes");
  if (text.empty()) std::_Exit(0);  // nothing was begun that would have to be ended
  for (const auto& [name, value] : parse_variables(text)) set(name, value);
  set(kSpareVariable, "");
}

std::string variables_text(const Variables& variables) {
  std::string text;
  for (const auto& [name, value] : variables) text += name + "=" + value + '\0';
  return text;
}

Variables parse_variables(const std::string& text) {
  Variables variables;
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = text.find('\0', begin);
    const std::size_t equals = text.find('=', begin);
    if (end == std::string::npos || equals >= end || equals == begin)
      throw DataError("spare: what the launcher wrote is cut off, or no list of variables");
    variables.emplace_back(
        text.substr(begin, equals - begin), text.substr(equals + 1, end - equals - 1));
    begin = end + 1;
  }
  return variables;
}

}  // namespace lockstep
