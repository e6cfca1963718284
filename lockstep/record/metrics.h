#pragma once

#include <array>
#include <cmath>
#include <cstdint>
#include <map>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>

#include "lockstep/core/enum_names.h"
#include "lockstep/core/process.h"

namespace lockstep {

/// The metric that compares epochs, as timm's --eval-metric.
enum class EvalMetric { kLoss, kTop1, kTop5 };
constexpr auto names_of(EvalMetric) {
  return std::array{EnumName{EvalMetric::kLoss, "loss"}, EnumName{EvalMetric::kTop1, "top1"},
      EnumName{EvalMetric::kTop5, "top5"}};
}

/// Returns whether more is better.
constexpr bool larger_is_better(EvalMetric metric) { return metric != EvalMetric::kLoss; }

/// The epoch that did best so far; none before the first.
struct BestEpoch {
  std::int64_t epoch = 0;  ///< counted from 1
  double value = 0;        ///< of the metric
};

/// Returns whether a value is better than the best so far: of equal ones the first stays. The first
/// best is a finite one, since the loss of an early epoch may overflow.
inline bool is_better(double value, const std::optional<BestEpoch>& best, EvalMetric metric) {
  if (!best) return std::isfinite(value);
  return larger_is_better(metric) ? value > best->value : value < best->value;
}

/// The scores of a model on a data set; what was not measured is absent.
struct Scores {
  std::optional<double> loss = {};
  std::optional<double> top1 = {};  ///< share of samples whose highest score is right
  std::optional<double> top5 =
      {};  ///< one of the five highest is; absent with five classes or fewer

  friend bool operator==(const Scores&, const Scores&) = default;
};

/// A member of Scores, with its name in files and in tables.
struct ScoreName {
  const char* name;
  const char* title;
  std::optional<double> Scores::*value;
  bool is_always_shown = false;  ///< in tables of a run; else where an epoch has a value
};

/// All members of Scores, in the order of the files. Writers and readers of metrics.jsonl,
/// summary.json and state.json, and the tables of a run, go through them.
inline constexpr ScoreName kScores[] = {{"loss", "loss", &Scores::loss, true},
    {"accuracy", "accuracy", &Scores::top1, true}, {"accuracy5", "top-5", &Scores::top5}};

/// A line of metrics.jsonl; what was not measured is absent here and `null` there.
struct MetricRecord {
  double elapsed = 0;  ///< seconds since the run began
  int rank = 0;
  int restart = 0;
  std::int64_t epoch = 0;  ///< counted from 1
  std::int64_t step = 0;   ///< optimizer steps made
  std::string split;       ///< `train`, `val`, `test`; `-ema`: averaged weights, `test-best`
  Scores scores = {};
  std::optional<double> lr = {};  ///< of the step
  std::optional<double> samples_per_s = {};
  std::optional<double> step_ms = {};
  std::optional<double> data_ms = {};
  std::optional<double> comm_ms = {};
  std::optional<double> loss_scale = {};  ///< of float16; the only one that is left out there, too
  std::map<std::string, double> more = {};  ///< numbers of a program's own, by name
};

/// A member of MetricRecord that is not a score, with its name in the file.
struct RateName {
  const char* name;
  std::optional<double> MetricRecord::*value;
  bool is_null_if_absent = true;
};

inline constexpr RateName kRates[] = {{"lr", &MetricRecord::lr},
    {"samples_per_s", &MetricRecord::samples_per_s}, {"step_ms", &MetricRecord::step_ms},
    {"data_ms", &MetricRecord::data_ms}, {"comm_ms", &MetricRecord::comm_ms},
    {"loss_scale", &MetricRecord::loss_scale, false}};

/// Sets a number of an object; null if there is none. JSON has no NaN and no infinity: those are
/// null too, and named in `nonfinite`.
void put_number(
    nlohmann::ordered_json& object, const std::string& name, const std::optional<double>& value);

/// Writes the fields of a record; a value that JSON cannot hold is `null` and named in
/// `nonfinite`. A name of `more` that is another field's is an InvalidArgument.
nlohmann::ordered_json json_of(const MetricRecord& record);

/// Writes a record as a line of the file, one JSON object.
std::string json_line(const MetricRecord& record, const std::string& utc_time);

/// The totals over some steps, of all ranks.
struct MeterReading {
  std::int64_t steps = 0;
  std::int64_t samples = 0;  ///< of all ranks together
  double loss_sum = 0;       ///< over these samples
  double seconds = 0;        ///< on this rank
  double data_seconds = 0;   ///< of them, waiting for data
  double comm_seconds = 0;   ///< of them, waiting for other ranks in backward

  double loss() const { return loss_sum / static_cast<double>(samples); }
  double samples_per_second() const { return static_cast<double>(samples) / seconds; }
  double milliseconds_a_step(double part) const { return 1e3 * part / static_cast<double>(steps); }

  /// Adds what later steps came to.
  MeterReading& operator+=(const MeterReading& later);

  friend bool operator==(const MeterReading&, const MeterReading&) = default;
};

}  // namespace lockstep
