#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "lockstep/data/loader.h"
#include "lockstep/data/samples.h"
#include "lockstep/train/record/best_weights.h"
#include "lockstep/train/train_run.h"

namespace lockstep {

/// Measures what is trained, finds the best epoch, and keeps its weights.
class Validator {
 public:
  /// Begins with the weights of the best epoch so far, if the run is resumed.
  explicit Validator(TrainRun& run);

  /// True if the epoch that was just trained is to be evaluated.
  bool is_due(bool is_last_epoch) const;

  /// Measures an epoch, with averaged weights too if there are some, and returns whether it is the
  /// best so far; then its weights are in best.safetensors. A collective.
  bool evaluate(EpochSummary& epoch);

  /// Returns the scores of the test set after the last epoch. A collective.
  Scores test(const EpochSummary& last);

  /// Writes model.safetensors, and model-ema.safetensors if there are averages. A collective.
  void save_last();

  /// Writes the best weights that a full disk has not taken yet. Throws std::system_error.
  void finish();

 private:
  Scores measure(const data::SamplesPointer& samples, const std::string& split, std::int64_t epoch);
  Loader loader(const data::SamplesPointer& samples) const;
  bool compare(std::int64_t epoch, const Scores& scores);
  void save_best();
  void restore_best(const SnapshotReader& snapshot);
  std::map<std::string, std::string> best_metadata() const;
  void save(const std::string& name);

  TrainRun& run_;
  std::optional<BestWeights> best_weights_;  // of rank 0
};

}  // namespace lockstep
