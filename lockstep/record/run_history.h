#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "lockstep/record/metrics_reader.h"

namespace lockstep::bench {

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

}  // namespace lockstep::bench
