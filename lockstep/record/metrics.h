#pragma once

#include <cmath>
#include <cstdint>
#include <map>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/core/process.h"

namespace lockstep {

/// The epoch that did best so far; none before the first.
struct BestEpoch {
  std::int64_t epoch = 0;  ///< counted from 1
  double value = 0;        ///< of the metric
};

/// Returns whether a value is better than the best so far: of equal ones the first stays. The first
/// best is a finite one, since the loss of an early epoch may overflow.
inline bool is_better(double value, const std::optional<BestEpoch>& best, bool larger_is_better) {
  if (!best) return std::isfinite(value);
  return larger_is_better ? value > best->value : value < best->value;
}

/// The scores of a model on a data set; what its task does not measure is absent.
struct Scores {
  std::optional<double> loss = {};
  std::optional<double> top1 = {};  ///< share of samples whose highest score is right
  std::optional<double> top5 =
      {};  ///< one of the five highest is; absent with five classes or fewer
  std::optional<double> perplexity = {};
  std::optional<double> bits_per_byte = {};
  std::optional<double> mae = {};   ///< mean of the absolute errors
  std::optional<double> rmse = {};  ///< root of the mean of the squared errors
  std::optional<double> r2 = {};    ///< share of the variance that is explained
  std::optional<double> micro_f1 = {};
  std::optional<double> macro_f1 = {};
  std::optional<double> average_precision = {};
  std::optional<double> mean_iou = {};  ///< intersection over union, mean over classes
  std::optional<double> pixel_accuracy = {};
  std::map<std::string, double> more = {};  ///< a program's own, by name

  friend bool operator==(const Scores&, const Scores&) = default;
};

/// A member of Scores, with its names and what it means.
struct ScoreName {
  const char* name;    ///< in files
  const char* title;   ///< in tables
  const char* option;  ///< of --eval-metric
  const char* figure;  ///< that shows its curve
  std::optional<double> Scores::*value;
  bool larger_is_better = false;
  bool is_null_if_absent = false;  ///< in files; else it is left out
  bool is_always_shown = false;    ///< in tables of a run, unless another task was measured
};

/// All members of Scores but `more`, in the order of the files. Writers and readers of
/// metrics.jsonl, summary.json and state.json, and the tables of a run, go through them.
inline constexpr ScoreName kScores[] = {
    {"loss", "loss", "loss", "loss", &Scores::loss, false, true, true},
    {"accuracy", "accuracy", "top1", "accuracy", &Scores::top1, true, true, true},
    {"accuracy5", "top-5", "top5", "accuracy", &Scores::top5, true, true},
    {"perplexity", "perplexity", "perplexity", "perplexity", &Scores::perplexity},
    {"bits_per_byte", "bits per byte", "bits-per-byte", "bits per byte", &Scores::bits_per_byte},
    {"mae", "MAE", "mae", "error", &Scores::mae}, {"rmse", "RMSE", "rmse", "error", &Scores::rmse},
    {"r2", "R2", "r2", "R2", &Scores::r2, true},
    {"micro_f1", "micro F1", "micro-f1", "score", &Scores::micro_f1, true},
    {"macro_f1", "macro F1", "macro-f1", "score", &Scores::macro_f1, true},
    {"average_precision", "avg. precision", "average-precision", "score",
        &Scores::average_precision, true},
    {"mean_iou", "mean IoU", "mean-iou", "score", &Scores::mean_iou, true},
    {"pixel_accuracy", "pixel accuracy", "pixel-accuracy", "score", &Scores::pixel_accuracy, true}};

/// Returns the names of --eval-metric.
std::vector<std::string> eval_metrics();

/// Returns the score that a name of --eval-metric means, one of those.
const ScoreName& eval_metric(const std::string& option);

/// Returns whether a name of --eval-metric means a number of a program's own: `max:NAME`, of which
/// larger values are better, or `min:NAME`.
bool is_own_metric(const std::string& option);

/// Returns whether larger values are better of what a name of --eval-metric means.
bool is_larger_better(const std::string& option);

/// Returns what a name of --eval-metric means among scores; nothing where it was not measured.
std::optional<double> metric_of(const Scores& scores, const std::string& option);

/// Returns whether a number of a program's own may have a name: UTF-8, and not one that files of a
/// run have for something else.
bool is_free_name(const std::string& name);

/// Returns the score that says most: the first that there is after the loss; else the loss.
const ScoreName& main_score(const Scores& scores);

/// Returns whether a table that shows all of these results has a column for a score: for what one
/// of them has, and for what is always shown. The accuracy is not, where they are of another task.
bool is_shown(const ScoreName& score, const std::vector<const Scores*>& results);

/// Returns a number of a program's own; nothing where it has none of that name.
std::optional<double> own_number(const Scores& scores, const std::string& name);

/// Returns the names of all that results have in `more`, each once.
std::vector<std::string> own_names(const std::vector<const Scores*>& results);

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
  std::optional<double> tokens_per_s = {};  ///< where tokens are learned; else left out
  std::optional<double> step_ms = {};
  std::optional<double> data_ms = {};
  std::optional<double> comm_ms = {};
  std::optional<double> loss_scale = {};    ///< of float16; else left out
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
    {"tokens_per_s", &MetricRecord::tokens_per_s, false},
    {"loss_scale", &MetricRecord::loss_scale, false}};

/// Sets a number of an object; null if there is none. JSON has no NaN and no infinity: those are
/// null too, and named in `nonfinite`.
void put_number(
    nlohmann::ordered_json& object, const std::string& name, const std::optional<double>& value);

/// Sets the scores of an object, each under its name behind a prefix such as `val_`.
void put_scores(nlohmann::ordered_json& object, const std::string& prefix, const Scores& scores);

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
