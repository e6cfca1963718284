#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/record/metrics_reader.h"

namespace lockstep::bench {

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

/// The content of a run's folder.
struct RunFolder {
  std::filesystem::path path;
  MetricsFile metrics;
  std::optional<SummaryFacts> summary = {};  ///< there is none before a run has ended
  std::vector<std::int64_t> snapshots;       ///< steps of those that were finished, ascending
  std::optional<std::int64_t> best_snapshot = {};
};

/// Reads a whole file of a run; a DataError for one of more than 256 MiB.
std::string text_of_run_file(const std::filesystem::path& path);

/// Reads the text of a summary.json; what is not as the format says is a DataError that begins
/// with `file`. Unknown keys are ignored.
SummaryFacts parse_summary(const std::string& text, const std::string& file);

/// Reads a run's folder. Without metrics.jsonl it is none: a DataError. Snapshots are listed by
/// their names, their bytes are not verified.
RunFolder read_run_folder(const std::filesystem::path& path);

}  // namespace lockstep::bench
