#pragma once

#include <string>
#include <string_view>

namespace lockstep::launch {

/// Collects bytes and gives them back as whole lines.
class LineBuffer {
 public:
  /// Takes bytes and returns the whole lines that are now there, each with its newline, as one
  /// text. A line longer than 64 KiB is given in pieces, each closed by a newline.
  std::string take(std::string_view bytes);

  /// Returns what is left, closed by a newline; empty if nothing is.
  std::string rest();

 private:
  std::string partial_;
};

/// Puts a prefix before each line of a text.
std::string prefixed(std::string_view lines, std::string_view prefix);

}  // namespace lockstep::launch
