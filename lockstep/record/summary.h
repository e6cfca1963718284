#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/record/metrics.h"
#include "lockstep/record/profile/profile.h"

namespace lockstep {

class JsonFields;

/// The results of one pass over the training data.
struct EpochSummary {
  std::int64_t epoch = 0;  ///< counted from 1
  double train_seconds = 0;
  double train_loss = 0;
  Scores val = {};
  Scores ema = {};         ///< with the averaged weights
  bool validated = false;  ///< on images for validation; else on those of the test
  std::int64_t samples = 0;
  double samples_per_s = 0;
  std::optional<double> tokens_per_s = {};  ///< where tokens are learned
  /// Of the evaluations after it, both if averaged weights were evaluated too; nothing without one.
  std::optional<double> val_seconds = {};
  std::int64_t val_samples = 0;  ///< that these evaluated, on all ranks
};

/// The results of a run: summary.json and the output of `--json`.
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
  Scores test = {};
  Scores best_test = {};  ///< the same with the weights of the best epoch
  std::int64_t steps = 0;
  std::int64_t skipped_steps = 0;  ///< of them, left out because a gradient overflowed in float16
  std::int64_t bad_images = 0;     ///< files that could not be read and were skipped
  std::string stopped_by;          ///< `epochs`, `max-steps`, `time`, `signal` or `error`
  std::string parameters_hash;     ///< the same on every rank, or the run would have failed
  std::string resumed_from = {};   ///< the snapshot that this start went on from; empty: none
  int restarts = 0;                ///< starts of the run before this one
  /// From the end of the processes before to the first step of these, as rank 0 saw it; nothing
  /// when no launcher of ours started them again.
  std::optional<double> recovery_seconds = {};
  std::string snapshot = {};  ///< the newest one that is complete; empty: none
  /// The most memory that each rank's process has had resident, summed over the processes; nothing
  /// where a system does not say, and of a run that ended with an error.
  std::optional<std::int64_t> peak_memory_bytes = {};
  std::optional<RunProfile> profile = {};
  int exit = 0;
};

/// Writes the summary as one line of JSON; a loss that is NaN or infinite becomes `null`.
std::string to_json(const RunSummary& summary);

/// Writes the table that ends a run: a row for each epoch.
std::string epoch_table(const RunSummary& summary);

/// Returns a number as JSON takes it: `null` for one that is absent, NaN or infinite.
nlohmann::ordered_json json_number(const std::optional<double>& value);

/// Returns what summary.json and state.json have of an epoch.
nlohmann::ordered_json json_of(const EpochSummary& epoch);

/// Reads scores whose keys have this prefix, such as `val_`; one that is missing is absent.
Scores read_scores(const JsonFields& fields, const std::string& prefix);

}  // namespace lockstep
