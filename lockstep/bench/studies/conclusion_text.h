#pragma once

#include <algorithm>
#include <cstddef>
#include <string>
#include <vector>

namespace lockstep::bench {

/// Joins sentences by blanks; empty ones are left out.
std::string in_one(const std::vector<std::string>& sentences);

/// Gives the sentences that are not empty.
std::vector<std::string> said(std::vector<std::string> sentences);

/// Says how many of all cells have no number; nothing if each has one.
std::string about_missing(std::ptrdiff_t missing, std::size_t all);

/// Counts cells without a number: each has a `result`.
template <class Cells>
std::ptrdiff_t count_missing(const Cells& cells) {
  return std::count_if(
      cells.begin(), cells.end(), [](const auto& cell) { return !cell.result.reason.empty(); });
}

/// Says that what is more than there are cores, such as `4 places`, is no fair test.
std::string about_oversubscribed(const std::string& what);

}  // namespace lockstep::bench
