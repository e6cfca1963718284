#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include <torch/arg.h>
#include <torch/types.h>

#include "lockstep/comm/process_group.h"
#include "lockstep/parallel/distributed_data_parallel.h"
#include "lockstep/parallel/pipeline/layers.h"
#include "lockstep/parallel/pipeline/links.h"
#include "lockstep/parallel/pipeline/stage.h"
#include "lockstep/parallel/schedule/schedule.h"

namespace lockstep {

/// The meaning of a loss function's result, so that micro-batches add up to the same.
enum class LossReduction {
  kMean,  ///< the mean over the samples: a micro-batch counts by its share of the batch
  kSum    ///< the sum over the samples
};

/// Turns scores and labels of a micro-batch into a scalar. Called in the last stage's thread.
using LossFunction =
    std::function<torch::Tensor(const torch::Tensor& output, const torch::Tensor& target)>;

/// The options of Pipeline and PipelineStage, equal on all ranks.
struct PipelineOptions {
  /// How many micro-batches a batch is cut into: more make the bubble smaller, fewer make
  /// better use of a device.
  TORCH_ARG(int, chunks) = kDefaultChunks;
  /// The order of work: see ScheduleKind.
  TORCH_ARG(ScheduleKind, schedule) = ScheduleKind::k1F1B;
  /// Which activations are computed again in backward instead of kept.
  TORCH_ARG(Checkpoint, checkpoint) = Checkpoint::kNever;
  /// Lets running statistics of batch norm layers follow the whole batch, once a step. Each
  /// micro-batch is normalised by its own statistics in any case.
  TORCH_ARG(bool, deferred_batch_norm) = false;
  /// How the losses of micro-batches add up.
  TORCH_ARG(LossReduction, reduction) = LossReduction::kMean;
};

/// The times of one rank of a pipeline in its last step.
struct PipelineTiming {
  double seconds = 0;  ///< from its first action to its last
  double waited = 0;   ///< of them, waiting for other stages
};

/// Returns the sizes of the micro-batches of a batch, as tensor_split cuts it, without empty ones:
/// 5 in 4 is 2 1 1 1, 2 in 4 is 1 1. Throws InvalidArgument for chunks < 1 or an empty batch.
std::vector<std::int64_t> micro_batch_sizes(std::int64_t batch, int chunks);

/// Cuts a batch [N, ...] into its micro-batches, as views.
std::vector<torch::Tensor> split_batch(
    const torch::Tensor& batch, const std::vector<std::int64_t>& sizes);

/// Returns the settings of all stages of a chain, without their devices.
std::vector<StageSettings> plan_stages(
    const Layers& layers, const std::vector<int>& balance, const PipelineOptions& options);

/// Returns for each rank the forwards of a schedule, or everything else, in its order.
std::vector<std::vector<Action>> actions_of(const Schedule& schedule, bool forward);

/// Throws InvalidArgument unless a step can be made with them: equal batch sizes, gradients on.
void check_step(const ChainInput& input, const torch::Tensor& target);

/// The sum of the losses of micro-batches, made in the last stage's thread.
class LossSum {
 public:
  LossSum(LossFunction loss, const torch::Tensor& target, const std::vector<std::int64_t>& sizes,
      LossReduction reduction);
  /// Computes a micro-batch's share of the loss.
  torch::Tensor operator()(torch::nn::AnyValue& output, int micro_batch);
  /// Returns the batch's loss, detached.
  torch::Tensor sum() const;

 private:
  LossFunction loss_;
  std::vector<torch::Tensor> targets_;
  std::vector<double> shares_;
  std::vector<torch::Tensor> losses_;
};

/// One rank's part of a schedule, carried out with its stages.
class Runner {
 public:
  /// Takes the rank's stages; `stages` is how many the pipeline has, stage s being on rank
  /// s % ranks.
  Runner(std::vector<Stage> own, int stages, int ranks, Links& links);

  void begin_step(const StepPlan& plan);

  /// Carries out actions in order, then calls `then`, if given; transfers follow from the others.
  void run(const std::vector<Action>& actions, const std::function<void()>& then = nullptr);

  void end_step();

  /// Passes the micro-batches to the first stage.
  void put_inputs(const ChainInput& input, const std::vector<std::int64_t>& sizes);

  /// Returns the last stage's outputs for all micro-batches, joined along the batch.
  torch::Tensor take_outputs(std::size_t micro_batches);

  /// Passes the gradients of its outputs to the last stage.
  void put_output_gradients(const torch::Tensor& gradient, const std::vector<std::int64_t>& sizes);

  /// Returns the gradient of each tensor of the input, undefined if no micro-batch has one.
  std::vector<torch::Tensor> take_input_gradients(const std::vector<std::int64_t>& sizes);

  /// Runs backward from the tensors of the input that require a gradient and have one.
  void hand_on_input_gradients(const ChainInput& input, const std::vector<std::int64_t>& sizes);

  const std::vector<Stage>& stages() const { return own_; }
  const PipelineTiming& timing() const { return timing_; }

 private:
  void run(const Action& action);
  void forward(Stage& stage, const Action& action);
  void backward(Stage& stage, const Action& action);
  void put(const Address& address, Payload payload);
  Payload take(const Address& address);
  Payload arriving(const Address& address);
  void hand_on(const Address& address, Payload payload);
  Stage& stage(int index);
  bool is_own(int stage) const;

  std::vector<Stage> own_;
  int stages_;
  int ranks_;
  Links& links_;
  StepPlan plan_;
  std::map<Address, Payload> here_;
  PipelineTiming timing_;
};

/// The common part of Pipeline and PipelineStage: layers in stages, a runner for each rank of this
/// process, and the replicas of them in other processes.
///
/// A step runs backward once for every micro-batch, so gradients are averaged over the replicas
/// once, at the end of the step. Stages end at different times: those that are done reduce while
/// the others compute.
class PipelineCore {
 public:
  PipelineCore(const PipelineCore&) = delete;
  PipelineCore& operator=(const PipelineCore&) = delete;

  struct Restore {
    bool before;
    void operator()(bool* accumulates) const { *accumulates = before; }
  };
  using Accumulation = std::unique_ptr<bool, Restore>;

  /// Lets gradients accumulate on each replica for as long as the returned value exists, which must
  /// not outlive the pipeline; the first step() after it averages the sum.
  ///
  ///     { auto accumulate = pipeline.no_sync(); pipeline.step(images, labels, loss); }
  ///     pipeline.step(more_images, more_labels, loss);
  [[nodiscard]] Accumulation no_sync() {
    return {&accumulates_, Restore{std::exchange(accumulates_, true)}};
  }

  /// Sets training or evaluation mode of this process's layers.
  void train(bool on = true);

  /// Returns the parameters of this process's stages, in order.
  std::vector<torch::Tensor> parameters() const { return parameters_of(layers_); }

  /// Counts the forwards that were computed a second time, since the start.
  std::int64_t recomputed() const;

 protected:
  /// Cuts the layers into stages for so many ranks, and takes those of one of them, or all. Throws
  /// InvalidArgument that says what to do if the numbers do not fit.
  PipelineCore(const Layers& layers, const std::vector<int>& balance,
      const PipelineOptions& options, int ranks, std::optional<int> rank = std::nullopt);
  ~PipelineCore() = default;

  /// Makes the stages of a rank on its device, and their runner.
  void add_runner(int rank, torch::Device device, Links& links);

  /// Gives every replica rank 0's parameters and buffers. A collective.
  void connect(ProcessGroup replicas);

  /// Copies rank 0's buffers to all replicas, unless the step adds to the gradients of one before
  /// it. A collective then.
  void before_step();
  /// Averages the gradients, unless they accumulate. A collective then.
  void after_step();

  const Schedule& schedule_for(std::size_t micro_batches);

  PipelineOptions options_;
  int stages_;
  Layers layers_;
  std::vector<Runner> runners_;

 private:
  int ranks_;
  std::vector<StageSettings> settings_;
  std::map<std::size_t, Schedule> schedules_;  // by the number of micro-batches
  std::optional<GradientSync> sync_;           // none with a group of one
  bool accumulates_ = false;
};

}  // namespace lockstep
