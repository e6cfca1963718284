#include "lockstep/launch/output/lines.h"

#include <utility>

namespace lockstep::launch {
namespace {

constexpr std::size_t kLongestLine = std::size_t{1} << 16;
constexpr std::size_t kTailLines = 20;
constexpr std::size_t kTailBytes = 500;

/// Returns what a terminal would show at the end: the text after the last carriage return.
std::string_view visible(std::string_view line) {
  while (!line.empty() && (line.back() == '\n' || line.back() == '\r')) line.remove_suffix(1);
  const auto start = line.rfind('\r');
  return start == std::string_view::npos ? line : line.substr(start + 1);
}

/// Returns whether a line is of a C++ stack, which says less than what stands above it.
bool is_of_frames(std::string_view line) {
  return line.starts_with("frame #") || line.starts_with("Exception raised from ");
}

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

std::string_view LineBuffer::bar() const {
  return partial_.find('\r') == std::string::npos ? std::string_view() : visible(partial_);
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
    const std::string_view line = lines.substr(0, size);
    result.append(prefix);
    if (line.find('\r') == line.npos)
      result.append(line);
    else
      result.append(visible(line)).append("\n");
    lines.remove_prefix(size);
  }
  return result;
}

void Tail::take(std::string_view lines) {
  // From the end: of a large text only the last lines are looked at.
  std::deque<std::string> last;
  while (!lines.empty() && last.size() < kTailLines) {
    const auto previous = lines.rfind('\n', lines.size() - 2);
    const auto start = lines.size() < 2 || previous == std::string_view::npos ? 0 : previous + 1;
    const std::string_view line = visible(lines.substr(start)).substr(0, kTailBytes);
    if (!is_of_frames(line)) last.emplace_front(line);
    lines = lines.substr(0, start);
  }
  for (std::string& line : last) lines_.push_back(std::move(line));
  while (lines_.size() > kTailLines) lines_.pop_front();
}

}  // namespace lockstep::launch
