#include <algorithm>
#include <map>
#include <tuple>

#include "bench/results_file/results_file.h"
#include "bench/statistics/estimate_text.h"
#include "bench/statistics/median.h"
#include "lockstep/core/error.h"

namespace lockstep::bench {
namespace {

// Small before large, and the ways in the order of the grid.
using Key = std::tuple<bool, std::string, int, int, int, std::string>;

Key key_of(const ResultsLine& line) {
  return {line.model == "mnist-large", line.model, line.repeat, line.batch, line.places, line.way};
}

std::vector<ResultsLine> lines_of(const ResultsFile& file, const Key& key) {
  std::vector<ResultsLine> lines;
  std::copy_if(file.lines.begin(), file.lines.end(), std::back_inserter(lines),
      [&](const auto& line) { return key_of(line) == key; });
  return lines;
}

std::string median_text(const std::vector<ResultsLine>& lines, double ResultsLine::*seconds) {
  std::vector<double> values;
  for (const ResultsLine& line : lines) values.push_back(line.*seconds);
  return values.empty() ? "-" : seconds_text(median(values));
}

void add(std::string& marks, const std::string& mark) {
  marks += (marks.empty() ? "" : ", ") + mark;
}

std::string marks_of(const std::vector<ResultsLine>& lines) {
  std::string marks;
  const auto any = [&](bool ResultsLine::*mark) {
    return std::any_of(lines.begin(), lines.end(), [&](const auto& line) { return line.*mark; });
  };
  if (any(&ResultsLine::oversubscribed)) add(marks, "oversubscribed");
  if (any(&ResultsLine::extrapolated)) add(marks, "extrapolated");
  return marks;
}

std::vector<std::string> row_of(const Key& key, const std::vector<ResultsSource>& sources) {
  const auto& [is_large, model, repeat, batch, places, way] = key;
  std::vector<std::string> row{
      model, std::to_string(repeat), std::to_string(batch), std::to_string(places), way};
  std::string note;
  for (const ResultsSource& source : sources) {
    const auto lines = lines_of(source.file, key);
    row.push_back(median_text(lines, &ResultsLine::first_seconds));
    row.push_back(median_text(lines, &ResultsLine::second_seconds));
    const std::string marks = marks_of(lines);
    if (!marks.empty()) add(note, source.name + ": " + marks);
  }
  row.push_back(note.empty() ? "-" : note);
  return row;
}

}  // namespace

page::Table results_table(const std::vector<ResultsSource>& sources) {
  page::Table table{.id = "results",
      .title = "Epoch times side by side",
      .columns = {{"model", true}, {"repeat"}, {"batch"}, {"places"}, {"way", true}},
      .rows = {}};
  std::map<Key, bool> keys;
  for (const ResultsSource& source : sources) {
    table.columns.push_back({source.name + " first [s]"});
    table.columns.push_back({source.name + " second [s]"});
    for (const ResultsLine& line : source.file.lines) keys[key_of(line)] = true;
    for (const std::string& note : source.file.notes) table.notes.push_back(note);
  }
  table.columns.push_back({"note", true});
  for (const auto& each : keys) table.rows.push_back(row_of(each.first, sources));
  table.notes.push_back(
      "batch is that of each place; where a file has a point several times, its median stands "
      "here");
  return table;
}

}  // namespace lockstep::bench
