#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include <torch/optim/optimizer.h>
#include <torch/types.h>

#include "lockstep/comm/process_group.h"
#include "lockstep/data/loader.h"
#include "lockstep/nn/grad_scaler.h"
#include "lockstep/nn/named_state.h"
#include "lockstep/parallel/pipeline/pipeline_options.h"
#include "lockstep/parallel/place/place.h"
#include "lockstep/train/optim/accumulation.h"
#include "lockstep/train/options/options.h"
#include "lockstep/train/strategy/layout.h"
#include "lockstep/train/strategy/start_weights.h"

namespace lockstep {

/// Are the groups that a rank of a training run belongs to.
struct RankGroups {
  ProcessGroup world;
  ProcessGroup replicas;  ///< ranks that hold the same parameters and train on other samples
  ProcessGroup stages;    ///< ranks that hold the stages of one model and train on the same samples
};

/// Divides the ranks by a layout. A collective.
RankGroups make_rank_groups(const ProcessGroup& world, const Layout& layout);

/// Is what the model is to learn: the form of an image, [channels, height, width], and how many
/// classes there are.
struct Task {
  std::vector<std::int64_t> image;
  std::int64_t classes = 0;
};

/// Is what one rank trains: the model or its part of it, with its optimizer, spread as asked.
class Replica {
 public:
  Replica(const TrainOptions& options, const RankGroups& groups);
  virtual ~Replica() = default;

  /// Gives the scores of images, as float whatever the precision; for evaluation. A collective of
  /// the stages.
  torch::Tensor scores(const torch::Tensor& images);

  /// Computes the gradients of a part of an optimizer step, in addition to those of the parts
  /// before it, and gives the loss of the batch. A collective.
  torch::Tensor backward(const Batch& batch, const StepPart& part);

  /// Makes the optimizer step with the gradients of all its parts, unless one of any rank
  /// overflowed in float16. A collective.
  void update(double lr);

  /// Counts the steps that were left out since the start.
  std::int64_t skipped_steps() const { return skipped_steps_; }

  /// Lets the buffers of all replicas follow those of the first, as training does before each
  /// forward: so what is evaluated is what is saved. A collective.
  void share_buffers();

  /// Gives what takes the steps.
  torch::optim::Optimizer& optimizer() { return *optimizer_; }

  /// Gives what float16 goes on from; nothing with another precision.
  std::optional<nn::GradScalerState> scaler() const { return scaler_.state(); }

  /// Goes on from what scaler() and skipped_steps() gave.
  void restore_scaler(const std::optional<nn::GradScalerState>& state, std::int64_t skipped_steps);

  /// Remembers how many layers each stage takes; empty for one that is not cut.
  void cut_by(std::vector<int> balance) { balance_ = std::move(balance); }
  const std::vector<int>& balance() const { return balance_; }

  /// Gives what the loss is multiplied by; 1 but for float16.
  double loss_scale() const { return scaler_.scale_factor(); }

  /// Remembers what the model began with: frozen batch norms stay in evaluation mode.
  void begin_with(StartWeights start) { start_ = std::move(start); }
  const StartWeights& start() const { return start_; }

  void set_training(bool training);

  /// Gives the parameters that this rank holds.
  virtual std::vector<torch::Tensor> parameters() const = 0;

  /// Gives the parameters and buffers that this rank holds, under the model's names.
  virtual nn::NamedTensors state() const = 0;

  /// Counts the seconds that this rank has waited for others since the start.
  virtual double communication_seconds() const { return 0; }

  /// Gives the type of images that the model computes fastest with.
  torch::ScalarType image_type() const;

 protected:
  /// Makes the optimizer once the parameters are there.
  void make_optimizer();

 private:
  virtual void train(bool on) = 0;
  virtual torch::Tensor evaluate(const torch::Tensor& images) = 0;
  // Gives the loss detached; unless the part is the last, gradients stay on this replica.
  virtual torch::Tensor forward_and_backward(
      const Batch& batch, const LossFunction& loss, bool is_last_part) = 0;

  Precision precision_;
  OptimizerSettings settings_;
  double smoothing_;
  RankGroups groups_;
  nn::GradScaler scaler_;  // of all ranks, be they replicas or stages
  std::int64_t skipped_steps_ = 0;
  StartWeights start_;
  std::vector<int> balance_;
  std::unique_ptr<torch::optim::Optimizer> optimizer_;
};

/// Makes what this rank trains, from the options' seed, computing in `places`. A collective.
std::unique_ptr<Replica> make_replica(
    const TrainOptions& options, const Layout& layout, const Task& task, const RankGroups& groups,
    const std::vector<Place>& places);

}  // namespace lockstep
