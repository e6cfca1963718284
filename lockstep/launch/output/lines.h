#pragma once

#include <deque>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep::launch {

/// Collects bytes and returns them as whole lines.
class LineBuffer {
 public:
  /// Takes bytes and returns the whole lines that are now there, each with its newline, as one
  /// text. A line longer than 64 KiB is returned in pieces, each closed by a newline.
  std::string take(std::string_view bytes);

  /// Returns the line that is not finished as a terminal would show it, if it was drawn anew by a
  /// carriage return, as progress bars are; empty otherwise.
  std::string_view bar() const;

  /// Returns what is left, closed by a newline; empty if nothing is.
  std::string rest();

 private:
  std::string partial_;
};

/// Puts a prefix before each line of a text, of which a terminal would show what is behind the last
/// carriage return.
std::string prefixed(std::string_view lines, std::string_view prefix);

/// The last 20 lines of a text, each up to 500 bytes, without those of a C++ stack.
class Tail {
 public:
  /// Takes whole lines.
  void take(std::string_view lines);

  /// Returns them oldest first, without newlines.
  std::vector<std::string> lines() const { return {lines_.begin(), lines_.end()}; }

 private:
  std::deque<std::string> lines_;
};

}  // namespace lockstep::launch
