#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace lockstep {

/// Is what one pass over the training data came to.
struct EpochSummary {
  std::int64_t epoch = 0;  ///< counted from 1
  double train_seconds = 0;
  double train_loss = 0;
  std::optional<double> val_loss = {};
  std::optional<double> val_accuracy = {};
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
  std::vector<EpochSummary> epochs;
  std::optional<double> test_accuracy = {};
  std::int64_t steps = 0;
  std::string stopped_by;       ///< `epochs`, `max-steps`, `max-time` or `error`
  std::string parameters_hash;  ///< the same on every rank, or the run would have failed
  int exit = 0;
};

/// Writes the summary as one line of JSON; a loss that is NaN or infinite becomes `null`.
std::string to_json(const RunSummary& summary);

/// Writes the table that ends a run: a row for each epoch.
std::string epoch_table(const RunSummary& summary);

}  // namespace lockstep
