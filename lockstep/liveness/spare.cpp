#include "lockstep/liveness/spare.h"

#include <array>
#include <cstdlib>
#include <unistd.h>

#include "lockstep/core/environment.h"
#include "lockstep/core/error.h"
#include "lockstep/core/file_descriptor.h"

namespace lockstep {
namespace {

// Until the launcher closes its end.
std::string read_all(const FileDescriptor& pipe) {
  std::string text;
  std::array<char, 4096> part{};
  while (true) {
    const ssize_t size = retried([&] { return ::read(pipe.get(), part.data(), part.size()); });
    if (size < 0) throw_errno("spare: read what the launcher writes");
    if (size == 0) return text;
    text.append(part.data(), static_cast<std::size_t>(size));
  }
}

void set(const std::string& name, const std::string& value) {
  const int result =
      value.empty() ? ::unsetenv(name.c_str()) : ::setenv(name.c_str(), value.c_str(), 1);
  if (result != 0) throw_errno("spare: set", name);
}

}  // namespace

void wait_if_spare() {
  const auto number = environment_count(kSpareVariable);
  if (!number) return;
  const FileDescriptor pipe(*number);
  const std::string text = read_all(pipe);
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
