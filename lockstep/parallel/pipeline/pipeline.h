#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <vector>

#include <torch/types.h>

#include "lockstep/comm/process_group.h"
#include "lockstep/device/accelerator.h"
#include "lockstep/parallel/pipeline/layers.h"
#include "lockstep/parallel/pipeline/pipeline_options.h"
#include "lockstep/parallel/pipeline/runner.h"
#include "lockstep/parallel/pipeline/stage_replicas.h"
#include "lockstep/parallel/place/place.h"
#include "lockstep/parallel/place/place_worker.h"

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
class Pipeline {
 public:
  /// Cuts the layers by `balance` (see cut()) into places.size() stages, or a multiple of it for
  /// interleaved and zero-bubble schedules: stage s is computed in places[s % places.size()].
  ///
  /// With a group, its ranks are replicas of the whole pipeline: step() averages the gradients over
  /// them. Throws InvalidArgument that says what to do if the numbers do not fit.
  Pipeline(const Layers& layers, const std::vector<int>& balance, const std::vector<Place>& places,
      PipelineOptions options = {}, ProcessGroup replicas = ProcessGroup());
  ~Pipeline();
  Pipeline(const Pipeline&) = delete;
  Pipeline& operator=(const Pipeline&) = delete;

  /// Computes forward and backward of a batch [N, ...] by the schedule and returns the loss,
  /// detached. An input that requires a gradient gets it, and hands it on to what it was computed
  /// from. An exception of a stage ends all stages and is thrown here.
  torch::Tensor step(
      const torch::Tensor& input, const torch::Tensor& target, const LossFunction& loss);

  /// Lets gradients accumulate on each replica for as long as the returned value lives; the first
  /// step() after it averages the sum.
  ///
  ///     { auto accumulate = pipeline.no_sync(); pipeline.step(images, labels, loss); }
  ///     pipeline.step(more_images, more_labels, loss);
  [[nodiscard]] StageReplicas::Accumulation no_sync() { return replicas_.no_sync(); }

  /// Computes the output; with gradients on, differentiable once.
  torch::Tensor operator()(const torch::Tensor& input);

  /// Sets training or evaluation mode of all layers.
  void train(bool on = true);

  /// Returns the parameters of all stages, in order.
  std::vector<torch::Tensor> parameters() const;

  /// Returns for each place what it did in the last step.
  std::vector<PipelineTiming> timing() const { return timing_; }

  /// Counts the forwards that were computed a second time, since the start.
  std::int64_t recomputed() const;

 private:
  friend struct PipelineBackward;

  const Schedule& schedule_for(std::size_t micro_batches);
  void begin_step(const StepPlan& plan);
  void run(const std::vector<std::vector<Action>>& actions);
  void run_rank(std::size_t rank, const std::vector<Action>& actions);
  void end_step();
  torch::Tensor forward(const torch::Tensor& input, const std::vector<std::int64_t>& sizes);
  torch::Tensor backward(const torch::Tensor& gradient, std::uint64_t step);
  Runner& last() { return runners_[static_cast<std::size_t>(stages_ - 1) % runners_.size()]; }

  Layers layers_;
  PipelineOptions options_;
  int stages_;
  Exchange exchange_;
  std::vector<LocalLinks> links_;  // one per place, as all below
  std::vector<Runner> runners_;
  std::vector<std::unique_ptr<PlaceWorker>> workers_;
  std::vector<PipelineTiming> timing_;
  PeerCopier labels_;                          // to the last stage
  std::map<std::size_t, Schedule> schedules_;  // by the number of micro-batches
  std::vector<std::int64_t> sizes_;            // of the step that was begun
  std::uint64_t step_ = 0;
  StageReplicas replicas_;
};

}  // namespace lockstep
