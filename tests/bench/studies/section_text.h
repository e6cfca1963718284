#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdexcept>
#include <string>
#include <vector>

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

/// Expects that tables and figures can be shown, and that their ids begin with the study's name.
inline void expect_whole(const page::Section& section, const std::string& study) {
  page::check_page({.title = "a page", .sections = {section}});
  for (const page::Table& table : section.tables) EXPECT_TRUE(table.id.starts_with(study + "-"));
  for (const plot::Figure& figure : section.figures) {
    EXPECT_TRUE(figure.id.starts_with(study + "-")) << figure.id;
    EXPECT_THAT(plot::to_svg(figure), ::testing::HasSubstr("</svg>")) << figure.id;
  }
}

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
