#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <torch/types.h>

#include "lockstep/core/enum_names.h"
#include "lockstep/data/device_images.h"
#include "lockstep/data/samples.h"
#include "lockstep/record/evaluation_result.h"
#include "lockstep/train/record/run_directory.h"
#include "lockstep/train/strategy/replica.h"
#include "lockstep/train/task/task.h"

namespace lockstep {

/// Returns the output of a net for a batch.
using Forward = std::function<torch::Tensor(const Batch&)>;

/// Looks at the output for a batch and at its target, both where they were computed.
using OnBatch = std::function<void(const torch::Tensor& output, const torch::Tensor& target)>;

/// Measures over the shares of all ranks; with shares that repeat nothing the result is exact. What
/// is marked by kIgnoredTarget does not count. A collective.
///
/// `leaves` is asked after each batch; when it says so, on all ranks after the same batch, the
/// evaluation is abandoned and there is no result. `on_batch` is shown each batch. `finish` is
/// called after this rank's last batch: others may have one more.
std::optional<Evaluation> evaluate(const Forward& forward, const Loader& share,
    const ProcessGroup& world, const Task& task, const std::function<bool()>& leaves = {},
    const OnBatch& on_batch = {}, const std::function<void()>& finish = {});

/// Returns the value of a score, by its name of --eval-metric; with five classes or fewer `top5` is
/// `top1`. One that was not measured is an InvalidArgument.
double value_of(const Scores& scores, const std::string& metric);

/// The predictions for the samples of an evaluation: for evaluate(), which shows its batches in the
/// order of the set.
class Predictions {
 public:
  /// Keeps the `worst` samples with the largest losses; of equal ones the first.
  Predictions(std::int64_t classes, std::size_t worst, TaskPointer task)
      : confusion_(classes), most_(worst), task_(std::move(task)) {}

  /// Takes the output for a batch, and its target; samples labelled kIgnoredTarget do not count.
  /// Waits for the device.
  void add(const torch::Tensor& output, const torch::Tensor& target);

  const Confusion& confusion() const { return confusion_; }

  /// Returns the worst first. A loss that is no number is worse than any.
  const std::vector<Judgement>& worst() const { return worst_; }

 private:
  void add_classes(
      const torch::Tensor& losses, const torch::Tensor& predicted, const torch::Tensor& classes);
  void keep_worst();

  Confusion confusion_;
  std::size_t most_;
  TaskPointer task_;
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

/// A part of a data set that weights are evaluated on.
enum class Split { kTest, kVal, kTrain };
constexpr auto names_of(Split) {
  return std::array{EnumName{Split::kTest, "test"}, EnumName{Split::kVal, "val"},
      EnumName{Split::kTrain, "train"}};
}

/// Reads what a run was told, from its folder. Throws DataError for a folder that holds no run.
TrainOptions options_of_run(const std::string& folder);

/// Returns of a run's options what an evaluation needs: model, data and how they are read,
/// precision. Training images are not augmented, and nothing is spread.
TrainOptions evaluation_options(const TrainOptions& run);

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
