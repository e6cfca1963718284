#include "lockstep/core/peak_memory.h"

#include <charconv>
#include <fstream>
#include <iterator>
#include <string>

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
  constexpr std::int64_t kKibibyte = 1024;  // the file says kB and means it so
  const auto key = status.find(kKey);
  if (key == std::string_view::npos) return std::nullopt;
  const auto digit = status.find_first_not_of(" \t", key + kKey.size());
  if (digit == std::string_view::npos) return std::nullopt;
  std::int64_t kibibytes = 0;
  const char* const end = status.data() + status.size();
  const auto read = std::from_chars(status.data() + digit, end, kibibytes);
  const std::string_view rest(read.ptr, static_cast<std::size_t>(end - read.ptr));
  if (read.ec != std::errc() || kibibytes < 0 || !rest.starts_with(" kB\n")) return std::nullopt;
  return kibibytes * kKibibyte;
}

}  // namespace lockstep
