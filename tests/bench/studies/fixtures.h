#pragma once

#include <algorithm>
#include <fstream>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <map>
#include <stdexcept>
#include <string>
#include <vector>

#include "tests/support/message_of.h"
#include "tests/support/temporary_folder.h"

#include "bench/experiment/study.h"
#include "lockstep/cli/train/train_flags.h"
#include "lockstep/cli/train/train_launch.h"
#include "lockstep/core/error.h"
#include "lockstep/record/metrics.h"
#include "lockstep/record/summary.h"
#include "lockstep/report/page/page.h"
#include "lockstep/report/plot/figure.h"

namespace lockstep::bench::testing {

/// Finds a table or a figure of a report.
inline const page::Table& table_of(const page::Section& section, const std::string& id) {
  for (const page::Table& table : section.tables) {
    if (table.id == id) return table;
  }
  throw std::runtime_error("no table " + id);
}
inline const plot::Figure& figure_of(const page::Section& section, const std::string& id) {
  for (const plot::Figure& figure : section.figures) {
    if (figure.id == id) return figure;
  }
  throw std::runtime_error("no figure " + id);
}

/// Returns all that a study concludes as one text: the answer, then the remarks.
inline std::string text_of(const page::Section& section) {
  std::string text = section.conclusion.answer;
  for (const std::string& remark : section.conclusion.remarks) text += " " + remark;
  return text;
}

/// Returns a row as one text, each cell followed by `|`.
inline std::string row_text(const std::vector<std::string>& row) {
  std::string text;
  for (const std::string& cell : row) text += cell + "|";
  return text;
}
inline std::string row_text(const page::Table& table, std::size_t row) {
  return row_text(table.rows.at(row));
}

/// Returns the row that begins with these cells, or says that there is none.
inline std::string row_text(const page::Table& table, const std::string& beginning) {
  for (const auto& row : table.rows) {
    if (row_text(row).starts_with(beginning)) return row_text(row);
  }
  return "no row " + beginning;
}

/// Expects that a table has these rows, as row_text() writes them.
inline void expect_rows(const page::Table& table, const std::vector<std::string>& texts) {
  std::vector<std::string> rows;
  for (const auto& row : table.rows) rows.push_back(row_text(row));
  for (const std::string& text : texts) EXPECT_THAT(rows, ::testing::Contains(text));
}

/// Expects these rows at their places in a table.
inline void expect_rows_at(
    const page::Table& table, const std::map<std::size_t, std::string>& texts) {
  for (const auto& [row, text] : texts) EXPECT_EQ(row_text(table, row), text);
}

/// Expects that a sample has these values.
inline void expect_values(
    const std::map<std::string, double>& found, const std::map<std::string, double>& expected) {
  for (const auto& [name, value] : expected) EXPECT_DOUBLE_EQ(found.at(name), value) << name;
}

/// Expects that tables and figures can be shown, and that their ids begin with the study's name.
inline void expect_whole(const page::Section& section, const std::string& study) {
  page::check_page({.title = "a page", .sections = {section}});
  for (const page::Table& table : section.tables) EXPECT_TRUE(table.id.starts_with(study + "-"));
  for (const plot::Figure& figure : section.figures) {
    EXPECT_TRUE(figure.id.starts_with(study + "-")) << figure.id;
    EXPECT_THAT(plot::to_svg(figure), ::testing::HasSubstr("</svg>")) << figure.id;
  }
}

/// Reports samples, and expects that the report is whole.
inline page::Section report_of(const Study& study, const std::vector<Sample>& samples) {
  const page::Section section = study.report(study, samples);
  expect_whole(section, study.name);
  return section;
}

/// Finds a cell of a study.
inline const StudyCell& cell_named(const Study& study, const std::string& id) {
  for (const StudyCell& cell : study.cells)
    if (cell.id == id) return cell;
  throw std::runtime_error("no cell " + id);
}

/// Returns the word that follows a flag in a command; "" if it is not there.
inline std::string after(const std::vector<std::string>& words, const std::string& flag) {
  const auto found = std::find(words.begin(), words.end(), flag);
  return found == words.end() || std::next(found) == words.end() ? "" : *std::next(found);
}

/// Returns what `lockstep train` is given by a cell: all after the word.
inline std::vector<std::string> train_flags_of(const StudyCell& cell) {
  const auto train = std::find(cell.command.begin(), cell.command.end(), "train");
  if (train == cell.command.end()) throw std::runtime_error(cell.id + " does not train");
  return {std::next(train), cell.command.end()};
}

/// Reads a cell's command as `lockstep train` does; it must spread over the cell's places.
inline TrainOptions train_options_of(const StudyCell& cell) {
  const auto launch = cli::parse_train_launch(train_flags_of(cell));
  const int ranks = launch.options.workers;
  const auto train =
      cli::parse_train_flags(launch.rest, {.world_size = ranks, .local_world_size = ranks});
  if (!train) throw std::runtime_error(cell.id + " trains nothing");
  EXPECT_EQ(std::max(ranks, train->options.places.value_or(1)), cell.places) << cell.id;
  EXPECT_EQ(launch.options.max_restarts, 0) << cell.id;
  return train->options;
}

/// The folder of a run, with what a study reads of it.
class RunFolder : public ::testing::Test {
 protected:
  const std::filesystem::path& run() const { return folder_.path(); }

  void write(const RunSummary& summary) const {
    std::ofstream(run() / "summary.json") << to_json(summary);
  }

  /// Adds a line to metrics.jsonl.
  void add(const MetricRecord& record, const std::string& time = utc_now()) const {
    std::ofstream(run() / "metrics.jsonl", std::ios::app) << json_line(record, time) << '\n';
  }

  /// Returns what a function that cannot read the folder says.
  template <class Read>
  std::string refusal_of(Read read) const {
    return lockstep::testing::message_of<DataError>(read);
  }

 private:
  const lockstep::testing::TemporaryFolder folder_;
};

/// Expects that each table marks a row as oversubscribed in its last column.
inline void expect_oversubscribed_marks(const page::Section& section) {
  for (const page::Table& table : section.tables) {
    bool marks = false;
    for (const auto& row : table.rows) {
      marks = marks || row.back().find("oversubscribed") != std::string::npos;
    }
    EXPECT_TRUE(marks) << table.id;
  }
}

/// Makes the samples that hold say that they failed.
template <class Samples, class Holds>
void fail_where(Samples& samples, const std::string& failure, Holds holds) {
  for (auto& sample : samples) {
    if (!holds(sample)) continue;
    sample.values.clear();
    sample.failure = failure;
    sample.code = 137;
  }
}

}  // namespace lockstep::bench::testing
