#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include <torch/types.h>

#include "lockstep/comm/process_group.h"
#include "lockstep/device/accelerator.h"
#include "lockstep/parallel/pipeline/pipeline_core.h"
#include "lockstep/parallel/place/place.h"

namespace lockstep {

/// A model that is cut into stages, each trained by a lasting thread in a separate place.
///
///     auto places = lockstep::cpu_places(2);
///     lockstep::Pipeline pipeline(lockstep::layers_of(net), {3, 4}, places,
///                                 lockstep::PipelineOptions().chunks(8));
///     optimizer.zero_grad();
///     auto loss = pipeline.step(images, labels, loss_function);   // forward and backward
///     optimizer.step();
///
/// Called like the module it returns the output, and backward() goes through the stages again:
///
///     auto loss = loss_function(pipeline(images), labels);
///     loss.backward();
///
/// Then all forwards come before all backwards whatever the schedule, since the loss lies outside.
/// The gradients accumulate in the model's own parameters; stages on accelerators move them there,
/// so make the optimizer afterwards or let it hold the same tensors. step() is not thread-safe.
class Pipeline : public PipelineCore {
 public:
  /// Cuts the layers by `balance` (see cut()) into places.size() stages, or a multiple of it for
  /// interleaved and zero-bubble schedules: stage s is computed in places[s % places.size()].
  ///
  /// With a group, its ranks are replicas of the whole pipeline: step() averages the gradients over
  /// them. Throws InvalidArgument that says what to do if the numbers do not fit.
  Pipeline(const Layers& layers, const std::vector<int>& balance, const std::vector<Place>& places,
      PipelineOptions options = {}, ProcessGroup replicas = ProcessGroup());
  ~Pipeline();

  /// Computes forward and backward of a batch [N, ...] by the schedule and returns the loss,
  /// detached. An input that requires a gradient gets it, and hands it on to what it was computed
  /// from. An exception of a stage ends all stages and is thrown here.
  torch::Tensor step(
      const ChainInput& input, const torch::Tensor& target, const LossFunction& loss);

  /// Computes the output; with gradients on, differentiable once.
  torch::Tensor operator()(const ChainInput& input);

  /// Returns for each place what it did in the last step.
  std::vector<PipelineTiming> timing() const;

 private:
  friend struct PipelineBackward;

  void begin_step(const StepPlan& plan);
  void run(const std::vector<std::vector<Action>>& actions);
  void run_rank(std::size_t rank, const std::vector<Action>& actions);
  void end_step();
  torch::Tensor forward(const ChainInput& input, const std::vector<std::int64_t>& sizes);
  std::vector<torch::Tensor> backward(const torch::Tensor& gradient, std::uint64_t step);
  Runner& last() { return runners_[static_cast<std::size_t>(stages_ - 1) % runners_.size()]; }

  Exchange exchange_;
  std::vector<LocalLinks> links_;  // one for each runner, as workers_
  std::vector<std::unique_ptr<PlaceWorker>> workers_;
  PeerCopier labels_;                // to the last stage
  std::vector<std::int64_t> sizes_;  // of the step that was begun
  std::uint64_t step_ = 0;
};

}  // namespace lockstep
