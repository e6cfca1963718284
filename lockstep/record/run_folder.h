#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/record/metrics_reader.h"

namespace lockstep {

/// The records of one epoch, over all restarts.
struct EpochHistory {
  std::int64_t epoch = 0;                 ///< counted from 1
  std::int64_t step = 0;                  ///< the last that is recorded
  std::optional<double> train_loss = {};  ///< mean of the recorded intervals, each by its steps
  Scores val = {};
  Scores ema = {};                ///< with averaged weights
  std::optional<double> lr = {};  ///< of the last step
  std::optional<double> samples_per_s = {};
  std::optional<double> seconds = {};  ///< of training; what restarts cost is not in it
};

/// A set of scores of an epoch, and its names.
struct ScoreSet {
  const char* key;    ///< before the names of its scores in files
  const char* title;  ///< before their titles in tables
  const char* split;  ///< in metrics.jsonl
  const char* words;  ///< in figures
  Scores EpochHistory::*scores;
};

/// All of them. Tables, files and figures of a run go through them, and through kScores.
inline constexpr ScoreSet kScoreSets[] = {{"val_", "val ", "val", "validation", &EpochHistory::val},
    {"ema_", "EMA ", "val-ema", "validation, averaged weights", &EpochHistory::ema}};

/// The point where a run resumed after its processes had ended.
struct Restart {
  int restart = 0;         ///< its number; those that recorded nothing are passed over
  std::int64_t epoch = 0;  ///< of its first record
  std::int64_t step = 0;
  std::int64_t made_again = 0;     ///< records of training that were there already from there on
  std::int64_t furthest_step = 0;  ///< that was recorded before
  std::optional<double> gap = {};  ///< seconds from the record before to the first one
};

/// A run's histories as one curve.
struct RunHistory {
  std::vector<EpochHistory> epochs;
  std::vector<Restart> restarts;
  Scores test = {};    ///< of the last test
  double seconds = 0;  ///< of training, all epochs
  std::optional<double> samples_per_s = {};
};

/// Makes one curve of what the lowest rank recorded; lines are in the file's order.
RunHistory run_history(const std::vector<MetricLine>& lines);

/// One epoch in a run's summary.json.
struct EpochFacts {
  std::optional<double> train_seconds = {};
  std::optional<double> train_loss = {};  ///< mean over its samples
  std::optional<std::int64_t> samples = {};
  std::optional<double> val_seconds = {};  ///< of its evaluation
  std::optional<std::int64_t> val_samples = {};
};

/// The part of a run's summary.json that a report shows; fields that it lacks are empty.
struct SummaryFacts {
  std::string model;
  std::string data;
  std::string parallel;
  std::string precision;
  std::optional<std::int64_t> world_size = {};
  std::optional<std::int64_t> batch_size = {};
  std::optional<std::int64_t> steps = {};
  std::optional<std::int64_t> skipped_steps = {};  ///< of them, for an overflow in float16
  std::string eval_metric;
  std::optional<std::int64_t> best_epoch = {};
  std::optional<double> best_value = {};
  Scores test = {};
  Scores best_test = {};  ///< with the weights of the best epoch
  std::string stopped_by;
  std::string parameters_hash;
  std::string resumed_from;
  std::optional<std::int64_t> restarts = {};
  std::optional<std::int64_t> exit = {};
  std::optional<std::int64_t> peak_memory_bytes = {};  ///< summed over the ranks' processes
  std::map<std::int64_t, EpochFacts> epochs = {};      ///< by number, from 1
};

/// Lists those that summary.json and a report in JSON have by the same names, as JsonWriter has it.
template <typename Object>
void list_fields(Object& object, SummaryFacts& facts) {
  const auto scores = [&](const std::string& prefix, Scores& values) {
    for (const ScoreName& score : kScores)
      if (Object::kReads || score.is_null_if_absent || values.*score.value)
        object((prefix + score.name).c_str(), values.*score.value);
  };
  object.text_or_null("model", facts.model);
  object.text_or_null("data", facts.data);
  object.text_or_null("parallel", facts.parallel);
  object.text_or_null("precision", facts.precision);
  object("world_size", facts.world_size);
  object("batch_size", facts.batch_size);
  object("steps", facts.steps);
  object.text_or_null("eval_metric", facts.eval_metric);
  if constexpr (!Object::kReads) {  // summary.json has both in `best`
    object("best_epoch", facts.best_epoch);
    object("best_value", facts.best_value);
  }
  scores("test_", facts.test);
  scores("best_test_", facts.best_test);
  object.text_or_null("stopped_by", facts.stopped_by);
  object.text_or_null("parameters_hash", facts.parameters_hash);
  object.text_or_null("resumed_from", facts.resumed_from);
  object("restarts", facts.restarts);
  object("exit", facts.exit);
  object("peak_memory_bytes", facts.peak_memory_bytes);
}

/// The content of a run's folder.
struct RunFolder {
  std::filesystem::path path;
  MetricsFile metrics;
  std::optional<SummaryFacts> summary = {};  ///< there is none before a run has ended
  std::vector<std::int64_t> snapshots;       ///< steps of those that were finished, ascending
  std::optional<std::int64_t> best_snapshot = {};
};

/// Reads the text of a summary.json; what is not as the format says is a DataError that begins
/// with `file`. Unknown keys are ignored.
SummaryFacts parse_summary(const std::string& text, const std::string& file);

/// Reads a run's folder. Without metrics.jsonl it is none: a DataError. Snapshots are listed by
/// their names, their bytes are not verified.
RunFolder read_run_folder(const std::filesystem::path& path);

}  // namespace lockstep
