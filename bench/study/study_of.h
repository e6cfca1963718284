#pragma once

#include <algorithm>
#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "bench/study/report_of.h"
#include "bench/study/training_run.h"
#include "lockstep/report/page/page.h"

namespace lockstep::bench {

/// A point of a study's grid and what was measured there, among all cells of the study.
template <class Point>
struct Measured : Point {
  CellResult result;
  const std::vector<Measured>* cells = nullptr;  ///< all, also those to compare it with

  /// True if it has a number, and its places had cores of their own.
  bool is_fair() const { return result.reason.empty() && !result.oversubscribed; }

  std::optional<Estimate> estimate(const std::string& value) const {
    return result.estimate(value);
  }

  /// Returns the median of a value; nothing where there is none.
  std::optional<double> median(const std::string& value) const {
    const auto found = result.estimate(value);
    return found ? std::optional(found->median) : std::nullopt;
  }
};

/// Returns the first cell for which this holds; nullptr if there is none.
template <class Cells, class Holds>
auto first_where(const Cells& cells, Holds holds) -> decltype(&cells.front()) {
  const auto found = std::ranges::find_if(cells, holds);
  return found == cells.end() ? nullptr : &*found;
}

/// Returns pointers to the cells for which this holds.
template <class Cells, class Holds>
auto select(const Cells& cells, Holds holds) {
  std::vector<decltype(&cells.front())> found;
  for (const auto& cell : cells) {
    if (holds(cell)) found.push_back(&cell);
  }
  return found;
}

/// Estimates how much larger a value is in one cell than in another; nothing if either is missing.
template <class Point>
std::optional<Estimate> ratio_of(const Measured<Point>* numerator,
    const Measured<Point>* denominator, const std::string& value) {
  if (numerator == nullptr || denominator == nullptr) return std::nullopt;
  return ratio_of(numerator->result, denominator->result, value);
}

template <class Cells>
bool any_oversubscribed(const Cells& cells) {
  return first_where(cells, [](const auto& cell) { return cell.result.oversubscribed; }) != nullptr;
}

/// Returns the least of a coordinate among oversubscribed cells; 0 if there are none.
template <class Cells, class Coordinate>
int least_oversubscribed(const Cells& cells, Coordinate coordinate) {
  int least = 0;
  for (const auto& cell : cells) {
    const int value = cell.*coordinate;
    if (cell.result.oversubscribed && (least == 0 || value < least)) least = value;
  }
  return least;
}

/// Says from how many of these, such as `places`, a figure shows cells that had to share cores;
/// empty if none had.
template <class Cells, class Coordinate>
std::string oversubscribed_from(const Cells& cells, Coordinate coordinate, const char* what) {
  const int least = least_oversubscribed(cells, coordinate);
  return least == 0 ? "" : concat(" From ", least, ' ', what, " on oversubscribed.");
}

/// Returns the median of an estimate, if there is one, as a share of `whole`.
inline std::optional<double> share_of(const std::optional<Estimate>& estimate, double whole) {
  return estimate ? std::optional(estimate->median / whole) : std::nullopt;
}

/// Returns the largest number of samples that a value has in any cell.
template <class Cells>
int most_rounds(const Cells& cells, const std::string& value) {
  int rounds = 0;
  for (const auto& cell : cells) {
    const auto found = cell.estimate(value);
    rounds = std::max(rounds, found ? found->count : 0);
  }
  return rounds;
}

template <class Cells>
std::vector<CellResult> results_of(const Cells& cells) {
  std::vector<CellResult> results;
  for (const auto& cell : cells) results.push_back(cell.result);
  return results;
}

/// Returns the least part of an epoch in any of the cells.
template <class Cells>
double least_epoch_share(const Cells& cells) {
  double share = 1;
  for (const auto& cell : cells) share = std::min(share, epoch_share(cell.result));
  return share;
}

/// A study over the points of a grid: what it runs, what it reads, and how it is reported.
template <class Point>
struct StudyOf {
  using Cells = std::vector<Measured<Point>>;

  std::string name;
  std::string title;
  std::string question;
  int rounds = 3;
  double limit_seconds = 300;
  std::vector<Point> grid;
  std::function<StudyCell(const Point&)> cell;
  /// Reads the values of a sample from the folder that its run left.
  std::function<SampleValues(const Point&, const std::filesystem::path& run)> values;
  page::Conclusion (*conclusion)(const Cells&);  ///< empty remarks are left out
  std::vector<page::Table> (*tables)(const Cells&);
  std::vector<plot::Figure> (*figures)(const Cells&);
  std::vector<SampleColumn> sample_columns;  ///< of the table of all samples
  std::string device = {};                   ///< of the trainings, see StudyOptions

  Study make() const;
};

template <class Point>
Study StudyOf<Point>::make() const {
  Study study{.name = name,
      .title = title,
      .question = question,
      .cells = {},
      .rounds = rounds,
      .limit_seconds = limit_seconds,
      .values = {},
      .report = {}};
  std::map<std::string, Point> points;
  for (const Point& point : grid) {
    study.cells.push_back(on_device(cell(point), device));
    points.emplace(study.cells.back().id, point);
  }
  study.values = [points, read = values](const StudyCell& each, const std::filesystem::path& run) {
    return read(points.at(each.id), run);
  };
  study.report = [points, is = *this](const Study& whole, std::span<const Sample> samples) {
    Cells cells;
    for (CellResult& result : cell_results(whole, samples)) {
      const Point& point = points.at(result.cell.id);
      cells.push_back({point, std::move(result), &cells});
    }
    page::Section section{.title = whole.title,
        .question = whole.question,
        .conclusion = is.conclusion(cells),
        .tables = is.tables(cells),
        .figures = is.figures(cells)};
    std::erase(section.conclusion.remarks, "");
    section.tables.push_back(sample_table(whole.name, results_of(cells), is.sample_columns));
    return section;
  };
  return study;
}

}  // namespace lockstep::bench
