#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/train/options/eval_metric.h"

namespace lockstep {

/// Is what one pass over the training data came to.
struct EpochSummary {
  std::int64_t epoch = 0;  ///< counted from 1
  double train_seconds = 0;
  double train_loss = 0;
  std::optional<double> val_loss = {};
  std::optional<double> val_accuracy = {};
  std::optional<double> val_accuracy5 = {};  ///< of the five highest scores
  std::optional<double> ema_loss = {};       ///< with the averaged weights
  std::optional<double> ema_accuracy = {};
  std::optional<double> ema_accuracy5 = {};
  bool validated = false;  ///< on images for validation; else on those of the test
  std::int64_t samples = 0;
  double samples_per_s = 0;
};

/// Is what a run came to: summary.json and the output of `--json`.
struct RunSummary {
  std::string model;
  std::string data;
  std::string parallel;
  int world_size = 1;
  int stages = 1;
  int chunks = 1;
  std::int64_t batch_size = 0;
  std::string precision;
  std::string precision_asked = {};  ///< `auto`, where the processors decided; else empty
  std::vector<EpochSummary> epochs;
  std::string eval_metric = "loss";    ///< by which `best` is the best
  std::optional<BestEpoch> best = {};  ///< its weights are in best.safetensors
  std::optional<double> test_loss = {};
  std::optional<double> test_accuracy = {};
  std::optional<double> test_accuracy5 = {};
  std::int64_t steps = 0;
  std::int64_t skipped_steps = 0;  ///< of them, left out because a gradient overflowed in float16
  std::int64_t bad_images = 0;     ///< files that could not be read and were skipped
  std::string stopped_by;          ///< `epochs`, `max-steps`, `time`, `signal` or `error`
  std::string parameters_hash;     ///< the same on every rank, or the run would have failed
  std::string resumed_from = {};   ///< the snapshot that this life went on from; empty: none
  int restarts = 0;                ///< lives of the run before this one
  /// From the death that ended the life before to the first step of this one, as rank 0 saw it;
  /// nothing when no launcher of ours started it again.
  std::optional<double> recovery_seconds = {};
  std::string snapshot = {};  ///< the newest one that is complete; empty: none
  /// The most memory that each rank's process has had resident, summed over the processes; nothing
  /// where a system does not tell, and of a run that ended with an error.
  std::optional<std::int64_t> peak_memory_bytes = {};
  int exit = 0;
};

/// Writes the summary as one line of JSON; a loss that is NaN or infinite becomes `null`.
std::string to_json(const RunSummary& summary);

/// Writes the table that ends a run: a row for each epoch.
std::string epoch_table(const RunSummary& summary);

}  // namespace lockstep
