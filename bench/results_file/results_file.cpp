#include "bench/results_file/results_file.h"

#include <algorithm>
#include <cmath>
#include <fstream>
#include <iterator>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <tuple>

#include "bench/statistics/estimate_text.h"
#include "bench/statistics/median.h"
#include "lockstep/core/error.h"
#include "lockstep/core/text.h"
#include "lockstep/formats/json_fields.h"

namespace lockstep::bench {
namespace {

using Json = nlohmann::json;

constexpr std::int64_t kMostCount = 1'000'000;
constexpr double kMostSeconds = 1e9;  // of an epoch

int count_of(const JsonFields& fields, const char* key) {
  return static_cast<int>(fields.count(key, 1, kMostCount));
}

double seconds_of(const JsonFields& fields, const char* key) {
  const double seconds = fields.seconds(key);
  if (seconds <= 0 || seconds >= kMostSeconds) fields.refuse(key, "be seconds above 0");
  return seconds;
}

// Empty where there is none.
std::string word_of(
    const JsonFields& fields, const char* key, const std::vector<std::string>& known) {
  const std::string word = fields.items().contains(key) ? fields.text(key) : "";
  const bool is_known = std::ranges::find(known, word) != known.end();
  if (fields.items().contains(key) && !is_known) fields.refuse(key, "be one of " + joined(known));
  return word;
}

bool flag_of(const JsonFields& fields, const char* key) {
  return fields.has(key) && fields.items().at(key) == true;
}

ResultsLine line_of(const JsonFields& fields) {
  ResultsLine line{.model = word_of(fields, "model_size", {"small", "large"}),
      .repeat = count_of(fields, "n_dataset_repeat"),
      .batch = count_of(fields, "batch_size"),
      .places = count_of(fields, "n_gpus"),
      .way = word_of(fields, "parallel", {"serial", "dp", "ddp"}),
      .first_seconds = seconds_of(fields, "first epoch time"),
      .second_seconds = seconds_of(fields, "second epoch time"),
      .extrapolated = flag_of(fields, "extrapolated"),
      .oversubscribed = flag_of(fields, "oversubscribed")};
  if (!line.model.empty()) line.model = "mnist-" + line.model;
  if (line.way.empty()) line.way = line.places == 1 ? "serial" : "dp";
  return line;
}

// The notebook's loop over models is the innermost one and begins with the small.
void name_models_by_order(ResultsFile& file, const std::string& name) {
  std::map<std::tuple<int, int, int>, int> seen;
  for (ResultsLine& line : file.lines) {
    if (!line.model.empty()) continue;
    int& before = seen[{line.repeat, line.batch, line.places}];
    line.model = before++ % 2 == 0 ? "mnist-small" : "mnist-large";
  }
  if (seen.empty()) return;
  file.notes.push_back(
      concat(name, ": lines without model_size are taken for mnist-small and mnist-large in turn"));
}

// A hand may have been in samples.jsonl.
std::string setting(const Sample& sample, const char* name) {
  const auto found = sample.settings.find(name);
  if (found != sample.settings.end()) return found->second;
  throw DataError(
      concat("samples.jsonl: a sample of ", sample.cell, " has no setting '", name, "'"));
}

int count(const Sample& sample, const char* name) {
  const std::string text = setting(sample, name);
  if (const auto value = parse_number<int>(text)) return *value;
  throw DataError(
      concat("samples.jsonl: a sample of ", sample.cell, " has ", name, " '", text, "'"));
}

Json number(const Sample& sample, const char* name) {
  const auto value = sample.values.find(name);
  return value != sample.values.end() && std::isfinite(value->second) ? Json(value->second)
                                                                      : Json(nullptr);
}

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

std::string marks_of(const std::vector<ResultsLine>& lines) {
  std::vector<std::string> marks;
  const auto any = [&](bool ResultsLine::*mark) {
    return std::ranges::any_of(lines, [&](const auto& line) { return line.*mark; });
  };
  if (any(&ResultsLine::oversubscribed)) marks.emplace_back("oversubscribed");
  if (any(&ResultsLine::extrapolated)) marks.emplace_back("extrapolated");
  return joined(marks);
}

std::vector<std::string> row_of(const Key& key, const std::vector<ResultsSource>& sources) {
  const auto& [is_large, model, repeat, batch, places, way] = key;
  std::vector<std::string> row{
      model, std::to_string(repeat), std::to_string(batch), std::to_string(places), way};
  std::vector<std::string> notes;
  for (const ResultsSource& source : sources) {
    const auto lines = lines_of(source.file, key);
    row.push_back(median_text(lines, &ResultsLine::first_seconds));
    row.push_back(median_text(lines, &ResultsLine::second_seconds));
    const std::string marks = marks_of(lines);
    if (!marks.empty()) notes.push_back(source.name + ": " + marks);
  }
  row.push_back(notes.empty() ? "-" : joined(notes));
  return row;
}

}  // namespace

std::string results_line(const Sample& sample) {
  const std::string model = setting(sample, "model");
  const Json share = number(sample, "epoch_share");
  const nlohmann::ordered_json line = {{"n_dataset_repeat", count(sample, "repeat")},
      {"batch_size", count(sample, "batch")}, {"n_gpus", sample.places},
      {"model_size", model.substr(model.find('-') + 1)},
      {"first epoch time", number(sample, "first_epoch_seconds")},
      {"second epoch time", number(sample, "second_epoch_seconds")},
      {"parallel", setting(sample, "way")}, {"round", sample.round}, {"time", sample.time},
      {"train_loss", number(sample, "train_loss")},
      {"test_accuracy", number(sample, "test_accuracy")},
      {"samples_per_s", number(sample, "samples_per_s")}, {"epoch_share", share},
      {"extrapolated", share.is_number() && share.get<double>() < 1},
      {"oversubscribed", sample.oversubscribed}};
  return line.dump(-1, ' ', false, Json::error_handler_t::replace);
}

ResultsFile parse_results(std::string_view text, const std::string& file) {
  ResultsFile results;
  std::size_t number = 0;
  while (!text.empty()) {
    const std::size_t end = text.find('\n');
    const std::string_view line = text.substr(0, end);
    text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
    const std::string where = concat(file, ": line ", ++number);
    if (line.find_first_not_of(" \t\r") == std::string_view::npos) continue;
    if (end == std::string_view::npos && !Json::accept(line)) {
      results.notes.push_back(where + ": incomplete because its writer died; skipped");
      break;
    }
    const Json object = parse_strict_json(line, where);
    results.lines.push_back(line_of(JsonFields(object, where)));
  }
  name_models_by_order(results, file);
  return results;
}

ResultsFile read_results(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) throw DataError(concat(path.string(), ": cannot be opened"));
  return parse_results(std::string(std::istreambuf_iterator<char>(file), {}), path.string());
}

page::Table results_table(const std::vector<ResultsSource>& sources) {
  page::Table table{.id = "results",
      .title = "Epoch times side by side",
      .columns = {{"model", true}, {"repeat"}, {"batch"}, {"places"}, {"way", true}},
      .rows = {}};
  std::set<Key> keys;
  for (const ResultsSource& source : sources) {
    table.columns.push_back({source.name + " first [s]"});
    table.columns.push_back({source.name + " second [s]"});
    for (const ResultsLine& line : source.file.lines) keys.insert(key_of(line));
    for (const std::string& note : source.file.notes) table.notes.push_back(note);
  }
  table.columns.push_back({"note", true});
  for (const Key& key : keys) table.rows.push_back(row_of(key, sources));
  table.notes.push_back(
      "batch is that of each place; where a file has a point several times, its median stands "
      "here");
  return table;
}

}  // namespace lockstep::bench
