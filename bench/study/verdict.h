#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "bench/study/measured.h"

namespace lockstep::bench {

/// True if the whole interval of a ratio lies above 1, or below: then the difference is
/// significant. One sample has no interval.
bool above_one(const std::optional<Estimate>& ratio);
bool below_one(const std::optional<Estimate>& ratio);

/// True if it also holds the true ratio nine times in ten or more, which takes 5 rounds.
bool surely_below_one(const std::optional<Estimate>& ratio);

/// The difference that does not matter in practice: rates of which one is at most this much more
/// than the other count as equal.
inline constexpr double kEqualMargin = 0.03;

/// True if the whole interval of a ratio lies between 1 / (1 + kEqualMargin) and 1 + kEqualMargin
/// and holds the true ratio nine times in ten or more. Whether 1 lies in it does not matter.
bool surely_equal(const std::optional<Estimate>& ratio);

/// Names that: `equal within 3 %`. Says in a sentence what it means.
std::string equal_text();
std::string equal_explained();

/// Returns on which side of 1 a ratio lies, and how sure that is: `surely faster` if such an
/// interval holds the true ratio nine times in ten or more, which takes 5 rounds; of fewer rounds
/// `faster in every round`; else `no significant difference`, or `only one round, not conclusive`.
std::string verdict_on(const Estimate& ratio, const std::string& above, const std::string& below);

/// Names the side of 1 for a table: `above`, `below`, `no significant difference`, `one round`.
std::string side_of_one(const Estimate& ratio, const std::string& above, const std::string& below);

/// The ratios of one comparison, made in several cells.
struct Verdict {
  std::vector<Estimate> ratios = {};
  int above = 0;  ///< how many are significantly above 1
  int below = 0;

  void add(const std::optional<Estimate>& ratio);

  /// True if some ratios lie significantly above 1 and no other was measured below it, not even
  /// in one round, or the reverse.
  bool is_above() const;
  bool is_below() const;

  /// True if some lie significantly above 1 and others significantly below.
  bool is_divided() const { return above > 0 && below > 0; }

  bool has_intervals() const;

  /// Says that something holds, `surely faster` only if each interval is long enough for that.
  std::string sure(const std::string& what) const;

  /// Explains those words for ratios over this many rounds; empty if there are no ratios.
  std::string explained() const;
};

/// Makes the verdict on what a function estimates of each cell; of fair cells alone.
template <class Cells, class Ratio>
Verdict verdict_of_fair(const Cells& cells, Ratio ratio) {
  Verdict verdict;
  for (const auto& cell : cells) {
    if (cell.is_fair()) verdict.add(ratio(cell));
  }
  return verdict;
}

/// Joins sentences by blanks; empty ones are left out.
std::string in_one(std::vector<std::string> sentences);

/// Returns the sentences that are not empty.
std::vector<std::string> said(std::vector<std::string> sentences);

/// Says how many of all cells have no number; empty if each has one.
std::string about_missing(const std::vector<CellResult>& results);

/// Says that there are more of these than cores, such as `4 places`, and what that means.
std::string about_oversubscribed(const std::string& what);

/// Says how many cores a place has, and from how many places on there are too few; the first cell
/// has one place.
template <class Cells>
std::string about_places(const Cells& cells) {
  const auto cores = cells.front().result.cell.cores / cells.front().places;
  const int over = least_oversubscribed(cells, &Cells::value_type::places);
  return in_one(
      {"A place is " + std::to_string(cores) + (cores == 1 ? " core" : " cores") + " here.",
          over == 0 ? "" : about_oversubscribed(std::to_string(over) + " places")});
}

}  // namespace lockstep::bench
