#pragma once

#include <algorithm>
#include <cstddef>
#include <string>
#include <vector>

#include "lockstep/core/error.h"

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

/// Says how many cores a place has, and from how many places on there are not enough: each cell has
/// `places` and a `result`, the first is of one place. There must be one.
template <class Cells>
std::string about_places(const Cells& cells) {
  const auto cores = cells.front().result.cell.cores / cells.front().places;
  int over = 0;
  for (const auto& cell : cells) {
    const bool less = over == 0 || cell.places < over;
    if (cell.result.oversubscribed && less) over = cell.places;
  }
  return in_one(
      {concat("A place is ", cores, cores == 1 ? " core" : " cores", " here."),
       over == 0 ? "" : about_oversubscribed(concat(over, " places"))});
}

}  // namespace lockstep::bench
