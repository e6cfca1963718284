#include "lockstep/core/peak_memory.h"

#include <fstream>
#include <iterator>
#include <string>

#include "lockstep/core/text.h"

namespace lockstep {

// Not getrusage(): its maximum goes over exec, so a small program started by a large one has the
// large one's.
std::optional<std::int64_t> peak_memory_bytes() {
  std::ifstream file("/proc/self/status");
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  return parse_peak_memory(text);
}

std::optional<std::int64_t> parse_peak_memory(std::string_view status) {
  constexpr std::string_view kKey = "\nVmHWM:";
  constexpr std::int64_t kKibibyte = 1024;  // which the file calls kB
  const auto key = status.find(kKey);
  if (key == std::string_view::npos) return std::nullopt;
  const auto digit = status.find_first_not_of(" \t", key + kKey.size());
  const auto unit = status.find(" kB\n", key);
  if (digit == std::string_view::npos || unit < digit || unit == std::string_view::npos)
    return std::nullopt;
  const auto kibibytes = parse_number<std::int64_t>(status.substr(digit, unit - digit));
  if (!kibibytes || *kibibytes < 0) return std::nullopt;
  return *kibibytes * kKibibyte;
}

}  // namespace lockstep
