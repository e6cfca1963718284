#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <torch/nn/modules/container/any.h>

#include "lockstep/parallel/operators/operator_rules.h"
#include "lockstep/parallel/pipeline/layers.h"
#include "lockstep/parallel/pipeline/links.h"
#include "lockstep/parallel/pipeline/stage_input.h"
#include "lockstep/parallel/place/place.h"
#include "lockstep/parallel/schedule/schedule.h"

namespace lockstep {

/// The layers of a stage and its way of keeping activations.
struct StageSettings {
  int index = 0;
  Layers layers;
  std::vector<std::string> skips_in = {};   ///< that cross the boundary before it, sorted
  std::vector<std::string> skips_out = {};  ///< that cross the boundary after it
  torch::Device device = torch::kCPU;
  Checkpoint checkpoint = Checkpoint::kNever;
  bool deferred_batch_norm = false;
};

/// Turns the last stage's output for a micro-batch into what backward starts from, a scalar.
using StageLoss = std::function<torch::Tensor(torch::nn::AnyValue& output, int micro_batch)>;

/// The facts about the step that begins, for all stages.
struct StepPlan {
  int micro_batches = 1;
  std::uint64_t seed = 0;  ///< of dropout and the like
  /// Empty before the last stage, and where the outputs' gradients come from outside.
  StageLoss loss = nullptr;
};

/// One stage of a pipeline: it computes micro-batch by micro-batch and keeps what their backward
/// needs. It knows nothing of other stages, threads or ranks.
class Stage {
 public:
  /// Moves the layers to the stage's device.
  explicit Stage(StageSettings settings);
  ~Stage();
  Stage(Stage&&) noexcept;

  int index() const { return settings_.index; }

  void begin_step(const StepPlan& plan);

  /// Computes a micro-batch and returns the output, detached; with gradients on, keeps it for
  /// backward. Where the plan has a loss, the output is the loss alone.
  Payload forward(int micro_batch, const Payload& input);

  /// Accumulates the parameters' gradients and returns those of the input, undefined where there is
  /// none. `gradient` holds one tensor for each of the output's, or undefined ones; where the plan
  /// has a loss it is ignored.
  Payload backward(int micro_batch, const Payload& gradient);

  /// Returns the gradients of the input alone; backward_weight() does the rest.
  Payload backward_input(int micro_batch, const Payload& gradient);
  void backward_weight(int micro_batch);

  /// Updates deferred statistics and forgets micro-batches that had no backward.
  void end_step();

  /// Counts the forwards that were computed a second time, since the start.
  std::int64_t recomputed() const { return recomputed_; }

 private:
  struct Pass;
  struct Output {
    ValueForm form = ValueForm::kTensor;
    std::vector<torch::Tensor> tensors;
  };

  Output compute(int micro_batch, const Payload& input, BatchNormRule* rule);
  Pass first_pass(int micro_batch, const Payload& input, Output& output);
  void compute_again(int micro_batch, Pass& pass);
  Pass& prepared(int micro_batch);
  template <typename Backward>
  Payload backward_by(int micro_batch, const Payload& gradient, const Backward& backward);
  bool keeps_inputs_only(int micro_batch) const;

  StageSettings settings_;
  StepPlan plan_;
  DeferredBatchNorm deferred_;
  BatchCounters counters_;
  std::map<int, std::unique_ptr<Pass>> passes_;
  std::int64_t recomputed_ = 0;
};

}  // namespace lockstep
