#include "lockstep/record/metrics.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <iterator>
#include <nlohmann/json.hpp>
#include <set>
#include <string_view>

#include "lockstep/core/error.h"
#include "lockstep/core/text.h"

namespace lockstep {

namespace {

using Json = nlohmann::ordered_json;

constexpr std::size_t kOwnPrefix = 4;  // `max:`

// That json_of() does not always write, or not at all.
constexpr std::array<std::string_view, 4> kOtherKeys = {"v", "time", "nonfinite", "loss_scale"};

}  // namespace

std::vector<std::string> eval_metrics() {
  std::vector<std::string> names;
  for (const ScoreName& score : kScores) names.emplace_back(score.option);
  return names;
}

const ScoreName& eval_metric(const std::string& option) {
  const auto* const found =
      std::ranges::find_if(kScores, [&](const ScoreName& score) { return score.option == option; });
  check(found != std::end(kScores), "metrics: there is no score ", option);
  return *found;
}

bool is_own_metric(const std::string& option) {
  return option.size() > kOwnPrefix && (option.starts_with("max:") || option.starts_with("min:"));
}

bool is_larger_better(const std::string& option) {
  return is_own_metric(option) ? option.starts_with("max:") : eval_metric(option).larger_is_better;
}

std::optional<double> metric_of(const Scores& scores, const std::string& option) {
  return is_own_metric(option) ? own_number(scores, option.substr(kOwnPrefix))
                               : scores.*eval_metric(option).value;
}

bool is_free_name(const std::string& name) {
  constexpr std::string_view kTaken[] = {"v", "time", "nonfinite", "elapsed", "rank", "restart",
      "epoch", "step", "split", "samples", "seconds", "validated", "model", "data", "output",
      "precision", "loss_name", "loss_plugin", "weights", "skipped", "classes", "confusion",
      "worst"};
  const auto is_it = [&](const auto& known) { return known.name == name; };
  return is_utf8(name) && !name.empty() && std::ranges::find(kTaken, name) == std::end(kTaken) &&
         std::ranges::none_of(kScores, is_it) && std::ranges::none_of(kRates, is_it);
}

const ScoreName& main_score(const Scores& scores) {
  const auto* const found = std::find_if(std::begin(kScores) + 1, std::end(kScores),
      [&](const ScoreName& score) { return (scores.*score.value).has_value(); });
  return found == std::end(kScores) ? kScores[0] : *found;
}

bool is_shown(const ScoreName& score, const std::vector<const Scores*>& results) {
  const auto has = [&](const ScoreName& one) {
    return std::ranges::any_of(
        results, [&](const Scores* scores) { return (scores->*one.value).has_value(); });
  };
  const auto is_others = [&](const ScoreName& one) { return !one.is_null_if_absent && has(one); };
  const bool is_classification =
      std::ranges::none_of(kScores, is_others) && own_names(results).empty();
  return has(score) || (score.is_always_shown && (!score.larger_is_better || is_classification));
}

std::optional<double> own_number(const Scores& scores, const std::string& name) {
  const auto found = scores.more.find(name);
  return found == scores.more.end() ? std::nullopt : std::optional(found->second);
}

std::vector<std::string> own_names(const std::vector<const Scores*>& results) {
  std::set<std::string> names;
  for (const Scores* scores : results)
    for (const auto& [name, value] : scores->more) names.insert(name);
  return {names.begin(), names.end()};
}

void put_number(Json& object, const std::string& name, const std::optional<double>& value) {
  object[name] = nullptr;
  if (!value) return;
  if (std::isfinite(*value)) {
    object[name] = *value;
  } else {
    object["nonfinite"].push_back(name);
  }
}

void put_scores(Json& object, const std::string& prefix, const Scores& scores) {
  for (const ScoreName& score : kScores) {
    const std::optional<double>& value = scores.*score.value;
    if (value || score.is_null_if_absent) put_number(object, prefix + score.name, value);
  }
  for (const auto& [name, value] : scores.more) put_number(object, prefix + name, value);
}

Json json_of(const MetricRecord& record) {
  Json line = Json::object();
  put_number(line, "elapsed", record.elapsed);
  line["rank"] = record.rank;
  line["restart"] = record.restart;
  line["epoch"] = record.epoch;
  line["step"] = record.step;
  line["split"] = record.split;
  put_scores(line, "", record.scores);
  for (const RateName& rate : kRates) {
    const std::optional<double>& value = record.*rate.value;
    if (value || rate.is_null_if_absent) put_number(line, rate.name, value);
  }
  for (const auto& [name, value] : record.more) {
    const bool is_taken =
        line.contains(name) || std::ranges::find(kOtherKeys, name) != kOtherKeys.end();
    check(!is_taken && is_utf8(name),
        "metrics: a number of your own needs a UTF-8 name that "
        "metrics.jsonl does not use itself: ",
        printable(name));
    put_number(line, name, value);
  }
  if (const auto found = line.find("nonfinite"); found != line.end()) {
    const Json names = *found;
    line.erase(found);
    line["nonfinite"] = names;  // last
  }
  return line;
}

std::string json_line(const MetricRecord& record, const std::string& utc_time) {
  Json line = {{"v", 1}, {"time", utc_time}};
  line.update(json_of(record));
  return line.dump();
}

MeterReading& MeterReading::operator+=(const MeterReading& later) {
  steps += later.steps;
  samples += later.samples;
  loss_sum += later.loss_sum;
  seconds += later.seconds;
  data_seconds += later.data_seconds;
  comm_seconds += later.comm_seconds;
  return *this;
}

}  // namespace lockstep
