#pragma once

#include <deque>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep::launch {

/// Remembers the last 20 lines, each up to 500 bytes.
class Tail {
 public:
  /// Takes whole lines.
  void take(std::string_view lines);

  /// Gives them oldest first, without newlines.
  std::vector<std::string> lines() const { return {lines_.begin(), lines_.end()}; }

 private:
  std::deque<std::string> lines_;
};

}  // namespace lockstep::launch
