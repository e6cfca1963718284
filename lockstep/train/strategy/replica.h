#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include <torch/optim/optimizer.h>
#include <torch/types.h>

#include "lockstep/comm/process_group.h"
#include "lockstep/data/loader.h"
#include "lockstep/device/accelerator.h"
#include "lockstep/device/parameters.h"
#include "lockstep/formats/weights/tensor_parts.h"
#include "lockstep/nn/autocast.h"
#include "lockstep/nn/grad_scaler.h"
#include "lockstep/nn/models/model.h"
#include "lockstep/nn/named_state.h"
#include "lockstep/parallel/data_parallel.h"
#include "lockstep/parallel/distributed_data_parallel.h"
#include "lockstep/parallel/fully_sharded_data_parallel.h"
#include "lockstep/parallel/pipeline/pipeline.h"
#include "lockstep/parallel/pipeline/pipeline_stage.h"
#include "lockstep/parallel/place/place.h"
#include "lockstep/record/profile/profile.h"
#include "lockstep/train/options/options.h"
#include "lockstep/train/strategy/sample_form.h"
#include "lockstep/train/strategy/turns.h"
#include "lockstep/train/task/task.h"

namespace lockstep {

/// The groups that a rank of a training run belongs to.
struct RankGroups {
  ProcessGroup world;
  ProcessGroup replicas;  ///< ranks that hold the same parameters and train on other samples
  ProcessGroup stages;    ///< ranks that hold the stages of one model and train on the same samples
};

/// Divides the ranks by a layout. A collective.
RankGroups make_rank_groups(const ProcessGroup& world, const Layout& layout);

/// A model that is ready to be spread.
struct PreparedModel {
  nn::Model model;
  TaskPointer task;
  StartWeights start;             ///< what it began with: frozen batch norms stay as they are
  std::vector<int> balance = {};  ///< layers of each stage; empty for one that is not cut
  /// Gives parameters their first values; empty if they have them.
  InitFunction init = nullptr;
};

/// One rank's share of the model, with its optimizer, spread as asked.
class Replica {
 public:
  /// Takes batches in on `device`.
  Replica(const TrainOptions& options, const RankGroups& groups, const PreparedModel& prepared,
      torch::Device device);
  virtual ~Replica() = default;

  /// Returns what the net is to learn.
  const TaskPointer& task() const { return task_; }

  /// Returns the output of the net for what its task measures of a batch, at least in float
  /// whatever the precision, on the device that has the last stage; for evaluation. A collective of
  /// the stages.
  torch::Tensor output(const Batch& batch);

  /// Takes part in an output() of other replicas, for which this one has no batch. A collective
  /// where output() is one of all ranks.
  virtual void join_output() {}

  /// Returns how many turns a step has, Note [Turns]; each has a backward() and an update().
  virtual std::size_t turns() const { return 1; }

  /// Computes the gradients of a part of an optimizer step, in addition to those of the parts
  /// before it, and returns the loss of the batch. What the model draws follows from the run's
  /// seed, the step's number, the part and the replica, see Note [What a step draws]. A collective.
  torch::Tensor backward(const Batch& batch, const StepPart& part, std::int64_t step);

  /// Makes the optimizer step with the gradients of all its parts, or of a turn. Returns, with
  /// float16, 1 on the device if the step was left out, because a gradient of any rank overflowed,
  /// and 0 if not; undefined with another precision. A collective; waits for no device.
  torch::Tensor update(double lr, std::size_t turn = 0);

  /// Returns how many steps were left out since this was last asked. Waits for the device.
  std::int64_t take_skipped_steps() { return scaler_.take_skipped(); }

  /// Lets the buffers of all replicas follow those of the first, as training does before each
  /// forward: so what is evaluated is what is saved. A collective.
  void share_buffers();

  /// Measures what the layers of the model cost on such images, in the modes of training; nothing
  /// if no place has all of it. A copy is measured: the model, its gradients and the random numbers
  /// stay as they are, and other ranks hear nothing of it.
  std::vector<LayerCosts> chain_costs(const ChainInput& input);

  /// Returns what the model's chain of layers takes of a batch; a plugin's task is not part of it.
  ChainInput chain_input(const Batch& batch) const {
    return options_.plugin_task.empty() ? task_->inputs(batch) : batch.input_tensors();
  }

  torch::optim::Optimizer& optimizer() { return *optimizer_; }

  /// Returns what float16 goes on from; nothing with another precision.
  std::optional<nn::GradScalerState> scaler() const { return scaler_.state(); }
  void restore_scaler(const std::optional<nn::GradScalerState>& state) { scaler_.load(state); }

  /// Returns what the loss is multiplied by; 1 but for float16.
  double loss_scale() const { return scaler_.scale_factor(); }

  /// True with float16 while a smaller scale, or another batch, may end the overflows that make the
  /// scaler leave steps out.
  bool may_recover() const { return scaler_.is_enabled() && scaler_.scale_factor() >= 1; }

  const std::vector<int>& balance() const { return balance_; }
  const StartWeights& start() const { return start_; }

  void set_training(bool training);

  /// Returns the parameters that this rank holds, each once, however many names it has.
  virtual std::vector<torch::Tensor> parameters() const = 0;

  /// Returns the parameters and buffers that this rank holds, under the model's names.
  virtual nn::NamedTensors state() const = 0;

  /// Returns which elements this rank holds of the tensors that ranks share: of all of them, also
  /// where it has none. state() has its parts, in the sizes of TensorRange::sizes(), which are what
  /// the optimizer updates, and none that is empty; the others are the same on all ranks of
  /// `replicas`.
  virtual TensorRanges ranges() const { return {}; }

  /// Returns the ranks that hold the other parts of the model that this rank has a part of.
  virtual const ProcessGroup& holders() const { return groups_.stages; }

  /// Returns the hash of all parameters, the same on all ranks. Throws Error if the ranks differ. A
  /// collective.
  virtual std::string parameters_hash();

  /// Returns the seconds that this rank has waited for others since the start.
  virtual double communication_seconds() const { return 0; }

  /// Returns the type of images that the model computes fastest with, and the task as exactly.
  torch::ScalarType image_type() const;

  /// Returns where batches are taken in: from pinned memory they get there beside the computing.
  torch::Device device() const { return copier_.device(); }

 protected:
  /// Makes the optimizer once the parameters are there.
  void make_optimizer();

  const nn::GradScaler& scaler_of_loss() const { return scaler_; }
  const RankGroups& groups() const { return groups_; }

  /// Begins the options' precision: for forward and loss, not for backward.
  nn::Autocast autocast() const;

 private:
  virtual void train(bool on) = 0;
  virtual void begin_turn(std::size_t /*turn*/) {}
  virtual double lr_factor(std::size_t /*turn*/) const { return 1; }
  virtual nn::Model copy_of_whole_model() { return nullptr; }
  virtual torch::Tensor evaluate(const std::vector<torch::Tensor>& inputs) = 0;
  // Returns the loss detached, computed with autocast(); unless the part is the last, gradients
  // stay on this replica.
  virtual torch::Tensor forward_and_backward(
      const Batch& batch, const LossFunction& loss, bool is_last_part) = 0;

  TrainOptions options_;
  TaskPointer task_;
  RankGroups groups_;
  DeviceCopier copier_;
  nn::GradScaler scaler_;  // of all ranks: replicas and stages alike
  StartWeights start_;
  std::vector<int> balance_;
  std::unique_ptr<torch::optim::Optimizer> optimizer_;
};

/// Makes the named optimizer with the settings' own learning rate.
///
/// Where only weights decay, the parameters with one dimension or none come first, in a group of
/// their own.
std::unique_ptr<torch::optim::Optimizer> make_optimizer(
    const OptimizerSettings& settings, const std::vector<torch::Tensor>& parameters);

/// Makes what this rank trains, from the options' seed, computing in `places`, of which there are
/// as many as the layout gives a rank; without any, where the calling thread is. First it rehearses
/// on the whole model. A collective.
std::unique_ptr<Replica> make_replica(const TrainOptions& options, const Layout& layout,
    const SampleForm& form, const RankGroups& groups, const std::vector<Place>& places,
    const std::vector<Rehearsed>& rehearsed = {});

/// A whole model: alone, divided over places by DataParallel, or one of those that
/// DistributedDataParallel keeps alike.
class ModuleReplica final : public Replica {
 public:
  ModuleReplica(const TrainOptions& options, const RankGroups& groups,
      const PreparedModel& prepared, const std::vector<Place>& places);
  std::vector<torch::Tensor> parameters() const override { return parameters_of(*model_); }
  nn::NamedTensors state() const override { return nn::named_state(*model_); }
  double communication_seconds() const override;
  std::size_t turns() const override { return turns_.size(); }

 private:
  void train(bool on) override { model_->train(on); }
  void begin_turn(std::size_t turn) override;
  double lr_factor(std::size_t turn) const override { return turns_.lr(turn); }
  nn::Model copy_of_whole_model() override;
  torch::Tensor evaluate(const std::vector<torch::Tensor>& inputs) override {
    return threads_ ? (*threads_)(inputs) : model_->forward(inputs);
  }
  torch::Tensor forward_and_backward(
      const Batch& batch, const LossFunction& loss, bool is_last_part) override;
  torch::Tensor forward(const std::vector<torch::Tensor>& inputs);

  nn::Model net_;
  std::shared_ptr<nn::MultiInputModule> model_;  // computes it
  Turns turns_;
  std::optional<DataParallel<std::shared_ptr<nn::MultiInputModule>>> threads_;
  // One for each turn.
  std::vector<DistributedDataParallel<std::shared_ptr<nn::MultiInputModule>>> ranks_;
  std::size_t turn_ = 0;
};

/// A model whose stages are threads of this process; other ranks may hold replicas of it.
class PipelineReplica final : public Replica {
 public:
  PipelineReplica(const TrainOptions& options, const RankGroups& groups,
      const PreparedModel& prepared, const std::vector<Place>& places);
  std::vector<torch::Tensor> parameters() const override { return pipeline_.parameters(); }
  nn::NamedTensors state() const override { return nn::named_state(layers_); }

 private:
  void train(bool on) override { pipeline_.train(on); }
  torch::Tensor evaluate(const std::vector<torch::Tensor>& inputs) override {
    return pipeline_(inputs);
  }
  torch::Tensor forward_and_backward(
      const Batch& batch, const LossFunction& loss, bool is_last_part) override;

  Layers layers_;
  Pipeline pipeline_;
};

/// One stage, or several, of a model whose others are on other ranks.
class StageReplica final : public Replica {
 public:
  StageReplica(const TrainOptions& options, const RankGroups& groups, const PreparedModel& prepared,
      torch::Device device);
  std::vector<torch::Tensor> parameters() const override { return stage_.parameters(); }
  nn::NamedTensors state() const override { return nn::named_state(stage_.layers()); }
  double communication_seconds() const override { return waited_seconds_; }

 private:
  void train(bool on) override { stage_.train(on); }
  torch::Tensor evaluate(const std::vector<torch::Tensor>& inputs) override {
    return stage_(inputs);
  }
  torch::Tensor forward_and_backward(
      const Batch& batch, const LossFunction& loss, bool is_last_part) override;

  PipelineStage stage_;
  double waited_seconds_ = 0;
};

/// A model of which each rank keeps a part, see FullyShardedDataParallel.
class ShardedReplica final : public Replica {
 public:
  ShardedReplica(const TrainOptions& options, const RankGroups& groups,
      const PreparedModel& prepared, torch::Device device);
  std::vector<torch::Tensor> parameters() const override { return sharded_.parameters(); }
  nn::NamedTensors state() const override;
  TensorRanges ranges() const override;
  const ProcessGroup& holders() const override { return sharded_.shard_group(); }
  void join_output() override {
    const nn::Autocast shorter = autocast();
    sharded_.join_forward();
  }
  std::string parameters_hash() override;
  double communication_seconds() const override { return sharded_.communication_seconds(); }

 private:
  void train(bool on) override { net_->train(on); }
  torch::Tensor evaluate(const std::vector<torch::Tensor>& inputs) override {
    return sharded_(inputs);
  }
  torch::Tensor forward_and_backward(
      const Batch& batch, const LossFunction& loss, bool is_last_part) override;

  nn::Model net_;
  FullyShardedDataParallel<std::shared_ptr<nn::MultiInputModule>> sharded_;
  std::unordered_map<const void*, ParameterPart> parts_;  // by the module's parameter
};

/// Returns how the replicas of `ddp` are kept alike. The scaler is that of their losses, and
/// outlives what is made with the options.
DistributedDataParallelOptions ddp_options(
    const TrainOptions& options, const nn::GradScaler& scaler);

}  // namespace lockstep
