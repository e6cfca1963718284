#include "lockstep/bench/studies/sample_table.h"

#include <algorithm>
#include <cmath>

#include "lockstep/bench/studies/estimate_text.h"
#include "lockstep/core/error.h"

namespace lockstep::bench {
namespace {

using Values = std::vector<std::pair<std::string, std::string>>;

std::string number(const Sample& sample, const std::string& name) {
  const auto found = sample.values.find(name);
  if (found == sample.values.end()) return "-";
  return std::isfinite(found->second) ? seconds_text(found->second) : "nan";
}

void add(std::string& text, const std::string& part) { text += (text.empty() ? "" : "; ") + part; }

std::string note_of(const CellResult& result, const Sample& sample, const Values& values) {
  std::string note;
  if (sample.oversubscribed) add(note, "oversubscribed");
  if (!sample.not_measurable.empty()) add(note, sample.not_measurable);
  if (!sample.failure.empty()) add(note, "failed: " + sample.failure);
  for (const auto& [name, head] : values) {
    const auto rounds = result.outlier_rounds(name);
    if (std::find(rounds.begin(), rounds.end(), sample.round) != rounds.end())
      add(note, "outlier: " + head);
  }
  return note.empty() ? "-" : note;
}

std::vector<std::string> row_of(
    const CellResult& result, const Sample& sample, const Values& values) {
  std::vector<std::string> row{result.cell.id, std::to_string(sample.round)};
  for (const auto& each : values) row.push_back(number(sample, each.first));
  const bool tried = sample.not_measurable.empty();
  row.push_back(tried ? seconds_text(sample.seconds) : "-");
  row.push_back(tried ? seconds_text(1000 * sample.calibration_seconds) : "-");
  row.push_back(
      tried && std::isfinite(sample.other_share) ? percent_text(sample.other_share) : "-");
  row.push_back(note_of(result, sample, values));
  return row;
}

}  // namespace

std::string sample_table_id(const std::string& study) { return study + "-samples"; }

page::Table sample_table(
    const Study& study, const std::vector<CellResult>& results, const Values& values) {
  page::Table table{
      .id = sample_table_id(study.name),
      .title = "Every sample",
      .columns = {{"cell", true}, {"round"}},
      .rows = {},
      .notes = {
          "calibration: a fixed piece of arithmetic just before the sample, slower when the clock "
          "is low or a neighbour busy; others: CPU time that other processes took meanwhile, as a "
          "share of the cores; outliers are shown and counted like the rest"}};
  for (const auto& each : values) table.columns.push_back({each.second});
  for (const char* head : {"whole run [s]", "calibration [ms]", "others"}) {
    table.columns.push_back({head});
  }
  table.columns.push_back({"note", true});
  for (const CellResult& result : results) {
    for (const Sample& sample : result.samples)
      table.rows.push_back(row_of(result, sample, values));
  }
  return table;
}

}  // namespace lockstep::bench
