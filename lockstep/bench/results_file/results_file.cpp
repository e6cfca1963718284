#include "lockstep/bench/results_file/results_file.h"

#include <charconv>
#include <cmath>
#include <fstream>
#include <iterator>
#include <map>
#include <tuple>

#include <nlohmann/json.hpp>

#include "lockstep/core/error.h"
#include "lockstep/formats/strict_json.h"

namespace lockstep::bench {
namespace {

using Json = nlohmann::json;

constexpr std::uint64_t kMostCount = 1'000'000;
constexpr double kMostSeconds = 1e9;  // of an epoch

/// Takes what a line must have.
class LineFields {
 public:
  LineFields(const Json& object, std::string where) : object_(object), where_(std::move(where)) {
    if (!object_.is_object()) refuse("it is no JSON object");
  }

  int count(const char* name) const {
    const Json& value = at(name);
    const bool fits = value.is_number_unsigned() && value.get<std::uint64_t>() > 0 &&
                      value.get<std::uint64_t>() <= kMostCount;
    if (!fits) refuse(concat("'", name, "' must be a whole number above 0: ", value.dump()));
    return value.get<int>();
  }

  double seconds(const char* name) const {
    const Json& value = at(name);
    const bool fits = value.is_number() && std::isfinite(value.get<double>()) &&
                      value.get<double>() > 0 && value.get<double>() < kMostSeconds;
    if (!fits) refuse(concat("'", name, "' must be seconds above 0: ", value.dump()));
    return value.get<double>();
  }

  bool has(const char* name) const { return object_.contains(name); }

  // Empty where there is none.
  std::string word(const char* name, const std::vector<std::string>& known) const {
    if (!has(name)) return "";
    const Json& value = object_.at(name);
    for (const std::string& each : known) {
      if (value == each) return each;
    }
    std::string list;
    for (const std::string& each : known) list += (list.empty() ? "" : ", ") + each;
    refuse(concat("'", name, "' must be one of ", list, ": ", value.dump()));
  }

  bool flag(const char* name) const { return has(name) && object_.at(name) == true; }

 private:
  const Json& at(const char* name) const {
    if (!has(name)) refuse(concat("'", name, "' is missing"));
    return object_.at(name);
  }

  [[noreturn]] void refuse(const std::string& reason) const {
    throw DataError(where_ + ": " + reason);
  }

  const Json& object_;
  std::string where_;
};

ResultsLine line_of(const LineFields& fields) {
  ResultsLine line{
      .model = fields.word("model_size", {"small", "large"}),
      .repeat = fields.count("n_dataset_repeat"),
      .batch = fields.count("batch_size"),
      .places = fields.count("n_gpus"),
      .way = fields.word("parallel", {"serial", "dp", "ddp"}),
      .first_seconds = fields.seconds("first epoch time"),
      .second_seconds = fields.seconds("second epoch time"),
      .extrapolated = fields.flag("extrapolated"),
      .oversubscribed = fields.flag("oversubscribed")};
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
  int value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error == std::errc() && end == text.data() + text.size()) return value;
  throw DataError(
      concat("samples.jsonl: a sample of ", sample.cell, " has ", name, " '", text, "'"));
}

Json number(const Sample& sample, const char* name) {
  const auto value = sample.values.find(name);
  return value != sample.values.end() && std::isfinite(value->second) ? Json(value->second)
                                                                      : Json(nullptr);
}

}  // namespace

std::string results_line(const Sample& sample) {
  const std::string model = setting(sample, "model");
  const Json share = number(sample, "epoch_share");
  const nlohmann::ordered_json line = {
      {"n_dataset_repeat", count(sample, "repeat")},
      {"batch_size", count(sample, "batch")},
      {"n_gpus", sample.places},
      {"model_size", model.substr(model.find('-') + 1)},
      {"first epoch time", number(sample, "first_epoch_seconds")},
      {"second epoch time", number(sample, "second_epoch_seconds")},
      {"parallel", setting(sample, "way")},
      {"round", sample.round},
      {"time", sample.time},
      {"train_loss", number(sample, "train_loss")},
      {"test_accuracy", number(sample, "test_accuracy")},
      {"samples_per_s", number(sample, "samples_per_s")},
      {"epoch_share", share},
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
      results.notes.push_back(where + ": torn when its writer ended; left out");
      break;
    }
    const Json object = parse_strict_json(line, where);
    results.lines.push_back(line_of(LineFields(object, where)));
  }
  name_models_by_order(results, file);
  return results;
}

ResultsFile read_results(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) throw DataError(concat(path.string(), ": cannot be opened"));
  return parse_results(std::string(std::istreambuf_iterator<char>(file), {}), path.string());
}

}  // namespace lockstep::bench
