#include "lockstep/launch/tail.h"

namespace lockstep::launch {
namespace {

constexpr std::size_t kLines = 20;
constexpr std::size_t kBytes = 500;

/// Gives what a terminal would show at the end: the text after the last carriage return.
std::string_view visible(std::string_view line) {
  while (!line.empty() && (line.back() == '\n' || line.back() == '\r')) line.remove_suffix(1);
  const auto start = line.rfind('\r');
  return start == std::string_view::npos ? line : line.substr(start + 1);
}

}  // namespace

void Tail::take(std::string_view lines) {
  // From the end: of a large text only the last lines are looked at.
  std::deque<std::string> last;
  while (!lines.empty() && last.size() < kLines) {
    const auto previous = lines.rfind('\n', lines.size() - 2);
    const auto start = lines.size() < 2 || previous == std::string_view::npos ? 0 : previous + 1;
    last.emplace_front(visible(lines.substr(start)).substr(0, kBytes));
    lines = lines.substr(0, start);
  }
  for (std::string& line : last) lines_.push_back(std::move(line));
  while (lines_.size() > kLines) lines_.pop_front();
}

}  // namespace lockstep::launch
