#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "bench/study/study_of.h"

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

/// Says how many of all cells have no number; empty if each has one.
std::string about_missing(const std::vector<CellResult>& results);

/// Says that there are more of these than cores, such as `4 places`, and what that means.
std::string about_oversubscribed(const std::string& what);

/// Says about_oversubscribed() of the least of these numbers that had to share cores; empty if none
/// had to.
template <class Cells, class Coordinate>
std::string about_crowd(const Cells& cells, Coordinate coordinate, const char* what) {
  const int least = least_oversubscribed(cells, coordinate);
  return least == 0 ? "" : about_oversubscribed(concat(least, ' ', what));
}

/// Says how many cores a place has, or that it is a device, and from how many places on there are
/// too few; the first cell has one place.
template <class Cells>
std::string about_places(const Cells& cells) {
  const StudyCell& first = cells.front().result.cell;
  const auto cores = first.cores / cells.front().places;
  const std::string of_cores = concat(cores, cores == 1 ? " core" : " cores");
  return in_one({concat("A place is ", first.on_cores ? of_cores : "a device", " here."),
      about_crowd(cells, &Cells::value_type::places, "places")});
}

/// The title of what sets DataParallel beside DistributedDataParallel.
inline constexpr const char* kDpOrDdp = "DataParallel or DistributedDataParallel";

/// Adds to a table of the cells of dp, each of which has one of ddp beside it, the columns that
/// compare both by a value in this unit.
template <class Cell>
TableOf<Cell> dp_beside_ddp(TableOf<Cell> table, const std::string& unit, const char* value,
    NumberText text, const Cell* (*ddp_of)(const Cell&), std::string (*note_of)(const Cell&)) {
  const auto ratio = [=](const Cell& dp) { return ratio_of(&dp, ddp_of(dp), value); };
  const auto faster = [=](const Cell& dp) {
    const auto found = ratio(dp);
    return found ? side_of_one(*found, "ddp", "dp") : "";
  };
  return table.number("dp [" + unit + "]", value, text)
      .number(
          "ddp [" + unit + "]", [=](const Cell& dp) { return ddp_of(dp)->estimate(value); }, text)
      .estimate("dp / ddp", "interval", ratio, ratio_text)
      .name("faster", faster)
      .name(
          "note", [=](const Cell& dp) { return note_of_both(note_of(dp), note_of(*ddp_of(dp))); });
}

/// Finds the cell with the largest median of a value, of those whose places have cores of their own
/// and that are not `but`; nothing without one.
std::optional<std::size_t> largest(std::span<const CellResult> results, const std::string& value,
    std::optional<std::size_t> but = {});

/// Says of each cell whether another round of it helps to find the one whose value is the largest.
///
/// Those not measured yet need one. Then the largest so far goes on with all that are not out: one
/// is out when its ratio to the largest is surely below 1 or surely equal to it (verdict.h), which
/// takes 5 rounds; and, unless it is the second, when it has less than two thirds of the largest in
/// each of two rounds or more. So are cells that failed and those that are oversubscribed. When
/// only the largest is left, nothing is to be measured any more.
std::vector<bool> contenders(std::span<const CellResult> results, const std::string& value);

}  // namespace lockstep::bench
