#pragma once

#include <filesystem>
#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "bench/study/cell_note.h"
#include "bench/study/measured.h"
#include "bench/study/train_command.h"
#include "lockstep/report/page/page.h"

namespace lockstep::bench {

/// The values of a sample by name.
using SampleValues = std::map<std::string, double>;

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
  page::Conclusion (*conclusion)(const Cells&);
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
      cells.push_back({point, std::move(result)});
    }
    std::vector<page::Table> all = is.tables(cells);
    all.push_back(sample_table(whole.name, results_of(cells), is.sample_columns));
    return page::Section{.title = whole.title,
        .question = whole.question,
        .conclusion = is.conclusion(cells),
        .tables = std::move(all),
        .figures = is.figures(cells)};
  };
  return study;
}

}  // namespace lockstep::bench
