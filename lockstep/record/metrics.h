#pragma once

#include <cstdint>
#include <map>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <set>
#include <string>
#include <utility>

#include "lockstep/core/process.h"
#include "lockstep/record/appended_file.h"

namespace lockstep {

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

/// The file of records: an AppendedFile of lines.
class MetricsLog {
 public:
  /// Creates the file; it must not exist yet, unless `goes_on`: then records come after those that
  /// it has. Throws std::system_error; DataError for a link, and for what is no regular file.
  explicit MetricsLog(const std::string& path, bool goes_on = false);

  /// Counts the starts of the run that have written records into the file before.
  int restarts() const { return restarts_; }

  /// Returns whether one of the last lines that were there when the file was opened is of that
  /// split and step.
  bool had(const std::string& split, std::int64_t step) const;

  /// Appends a record, or keeps it; then `take_warning` says so.
  void append(const MetricRecord& record) { file_.append(json_line(record, utc_now()) + "\n"); }

  /// Writes what waits. Throws std::system_error when the disk does not take it.
  void flush() { file_.flush(); }

  /// Returns why records wait, once for each time that they begin to; empty when there is nothing
  /// new.
  std::string take_warning() { return file_.take_warning(); }

 private:
  AppendedFile file_;
  std::set<std::pair<std::string, std::int64_t>> had_;
  int restarts_ = 0;
};

}  // namespace lockstep
