#include "lockstep/launch/line_buffer.h"

#include <utility>

namespace lockstep::launch {
namespace {

constexpr std::size_t kLongestLine = std::size_t{1} << 16;

}  // namespace

std::string LineBuffer::take(std::string_view bytes) {
  const auto end = bytes.rfind('\n');
  if (end == std::string_view::npos) {
    partial_ += bytes;
    return partial_.size() < kLongestLine ? "" : rest();
  }
  std::string lines = std::exchange(partial_, std::string(bytes.substr(end + 1)));
  lines += bytes.substr(0, end + 1);
  return lines;
}

std::string LineBuffer::rest() {
  if (partial_.empty()) return "";
  return std::exchange(partial_, "") + "\n";
}

std::string prefixed(std::string_view lines, std::string_view prefix) {
  std::string result;
  result.reserve(lines.size() + 32 * prefix.size());
  while (!lines.empty()) {
    const auto end = lines.find('\n');
    const auto size = end == std::string_view::npos ? lines.size() : end + 1;
    result.append(prefix).append(lines.substr(0, size));
    lines.remove_prefix(size);
  }
  return result;
}

}  // namespace lockstep::launch
