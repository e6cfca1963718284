#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/data/samples.h"
#include "lockstep/nn/named_state.h"
#include "lockstep/train/checkpointer.h"
#include "lockstep/train/train_run.h"

namespace lockstep {

/// The file of the best epoch's weights. What a full disk does not take stays in memory and is
/// tried again, so that training goes on.
class BestWeights {
 public:
  using Metadata = std::map<std::string, std::string>;

  explicit BestWeights(std::filesystem::path file) : file_(std::move(file)) {}

  const std::filesystem::path& file() const { return file_; }

  /// Writes these weights, or keeps a copy of them. Gives the reason why it could not write; empty:
  /// it did.
  std::string save(const nn::NamedTensors& weights, const Metadata& metadata);

  /// Returns whether what was saved last, by this start or another one, has this metadata.
  bool holds(const Metadata& metadata) const;

  /// Throws DataError unless it does.
  void require(const Metadata& metadata) const;

  /// Copies what was saved last into tensors of its names, all of them. Throws DataError unless it
  /// has this metadata and fits.
  void load(const nn::NamedTensors& into, const Metadata& metadata) const;

  /// Writes what was kept, if anything. Throws std::system_error when the disk still does not take
  /// it.
  void finish();

 private:
  struct Kept {
    nn::NamedTensors weights;
    Metadata metadata;
  };

  std::filesystem::path file_;
  std::optional<Kept> kept_;
};

/// The scores of the test set.
struct TestScores {
  Scores last = {};  ///< with the last weights
  Scores best = {};  ///< with those in best.safetensors
};

/// The part that measures what is trained, finds the best epoch, and keeps its weights.
///
/// A signal interrupts an evaluation (Checkpointer::course() says so then): nothing came of it, and
/// the next start makes it anew.
class Validator {
 public:
  /// Begins with the weights of the best epoch so far, if the run is resumed.
  Validator(TrainRun& run, Checkpointer& checkpointer);

  /// True if the epoch that was just trained is to be evaluated.
  bool is_due(bool is_last_epoch) const;

  /// Measures an epoch, with averaged weights too if there are some, and returns whether it is the
  /// best so far; then its weights are in best.safetensors. A collective.
  bool evaluate(EpochSummary& epoch);

  /// Returns the scores of the test set after the last epoch: those that are known already where
  /// the last epoch is the best, or the test set chose it; none where there is no test set but the
  /// images of validation. The replica keeps its weights. A collective.
  TestScores test(const EpochSummary& last);

  /// Writes model.safetensors, and model-ema.safetensors if there are averages. A collective.
  void save_last();

  /// Writes the best weights that a full disk has not taken yet. Throws std::system_error.
  void finish();

 private:
  bool measure(const data::SamplesPointer& samples, const std::string& split, std::int64_t epoch,
      Scores& scores);
  void record_measured();
  Scores best_of_epochs() const;
  void with_best_weights(const std::function<void()>& body);
  bool load_best(const nn::NamedTensors& into);
  bool compare(std::int64_t epoch, const Scores& scores);
  nn::NamedTensors weights_to_save() const;
  std::filesystem::path best_file() const;
  void save_shared_best(const TensorRanges& ranges);
  void save_best();
  void restore_best(const SnapshotReader& snapshot);
  std::map<std::string, std::string> best_metadata() const;
  void save(const std::string& name);

  TrainRun& run_;
  Checkpointer& checkpointer_;
  std::optional<BestWeights> best_weights_;  // of rank 0
  std::vector<MetricRecord> measured_;       // of the evaluation under way
  struct Evaluated {
    double seconds = 0;
    std::int64_t samples = 0;
  };
  Evaluated evaluated_;  // since the epoch's end
};

}  // namespace lockstep
