#pragma once

#include <string>
#include <vector>

namespace lockstep::testing {

/// The end of a command, with its output on both streams.
struct Ended {
  int status = -1;  ///< as a shell reports it
  std::string output;
};

/// Runs a line of a shell; programs that were built are found by their names. After two minutes it
/// is ended.
Ended run_line(const std::string& line);

/// Returns the numbers that a pattern's first group matches, match by match.
std::vector<double> numbers_in(const std::string& text, const std::string& pattern);

}  // namespace lockstep::testing
