#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include <torch/types.h>

#include "lockstep/comm/process_group.h"
#include "lockstep/data/device_images.h"
#include "lockstep/data/loader.h"
#include "lockstep/data/samples.h"
#include "lockstep/parallel/place/place.h"
#include "lockstep/record/evaluation_result.h"
#include "lockstep/train/evaluation/run_weights.h"
#include "lockstep/train/optim/loss.h"
#include "lockstep/train/options/options.h"
#include "lockstep/train/strategy/replica.h"

namespace lockstep {

/// The fates of the samples of an evaluation: for evaluate(), which shows its batches in the order
/// of the set.
class Predictions {
 public:
  /// Keeps the `worst` samples with the largest losses; of equal ones the first.
  Predictions(std::int64_t classes, std::size_t worst, Loss loss = Loss())
      : confusion_(classes), most_(worst), loss_(std::move(loss)) {}

  /// Takes scores [samples, classes] and labels; those marked kIgnoredTarget do not count. Waits
  /// for the device.
  void add(const torch::Tensor& scores, const torch::Tensor& labels);

  const Confusion& confusion() const { return confusion_; }

  /// Returns the worst first. A loss that is no number is worse than any.
  const std::vector<Judgement>& worst() const { return worst_; }

 private:
  Confusion confusion_;
  std::size_t most_;
  Loss loss_;
  std::int64_t seen_ = 0;
  std::vector<Judgement> worst_;
};

/// The batches of an evaluation, and the threads that prepare them.
struct EvaluationBatches {
  std::int64_t batch_size = 128;
  int workers = 0;
};

/// Returns this rank's share of a set, in the set's order, in the form that the replica computes
/// fastest with. Nothing is dealt out twice, so what is counted is the whole set.
Loader evaluation_loader(const data::SamplesPointer& samples, const ProcessGroup& replicas,
    const Replica& replica, data::ResidentSets& resident, const EvaluationBatches& batches);

/// A request to evaluate weights on a data set.
struct EvaluationRequest {
  TrainOptions options;  ///< as evaluation_options() gives them; the plugin is loaded already
  WeightsSource weights;
  Split split = Split::kTest;
  std::size_t worst = 0;  ///< samples to show
};

/// Evaluates weights as the trainer would, in one place: the scores are those that a run of one
/// rank recorded for the same weights, bit for bit.
///
/// Throws DataError for weights that are damaged or of another model, and for bad data;
/// InvalidArgument for an unknown model, set, or part of a set.
EvaluationResult evaluate_weights(const EvaluationRequest& request, const Place& place);

}  // namespace lockstep
