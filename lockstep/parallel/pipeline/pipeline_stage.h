#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include <torch/types.h>

#include "lockstep/comm/process_group.h"
#include "lockstep/parallel/pipeline/pipeline_core.h"

namespace lockstep {

/// The two ways in which ranks work together when pipelines are replicated: rank = replica *
/// stages + stage.
struct PipelineGrid {
  ProcessGroup stages;    ///< the ranks of one replica, in the order of the stages
  ProcessGroup replicas;  ///< the ranks that hold the same stage
};

/// Divides the ranks of a group into pipelines of `ranks` ranks each. A collective. Throws
/// InvalidArgument if they do not come out even.
PipelineGrid make_pipeline_grid(const ProcessGroup& world, int ranks);

/// A model that is cut into stages, each trained on a separate rank.
///
/// All ranks make the whole model, alike or not: each uses and trains its own layers only. They
/// call step() with the same arguments; the first rank looks at the input alone, the last at the
/// target.
///
///     auto grid = lockstep::make_pipeline_grid(world, 2);
///     lockstep::PipelineStage stage(lockstep::layers_of(net), {3, 4}, grid.stages,
///                                   lockstep::PipelineOptions().chunks(8), grid.replicas);
///     torch::optim::SGD optimizer(stage.parameters(), 0.1);
///     optimizer.zero_grad();
///     auto loss = stage.step(images, labels, loss_function);   // the same on all ranks
///     optimizer.step();
class PipelineStage : public PipelineCore {
 public:
  /// Cuts the layers by `balance` (see cut()) into as many stages as the group has ranks, or a
  /// multiple of it for interleaved and zero-bubble schedules: stage s is on rank s % size. The
  /// layers of this rank move to `device`.
  ///
  /// `replicas` are the ranks that hold the same stage of other pipelines; step() averages the
  /// gradients over them. A collective. Throws InvalidArgument on every rank if the numbers do not
  /// fit, or if ranks differ in balance, schedule or chunks.
  PipelineStage(const Layers& layers, const std::vector<int>& balance, ProcessGroup group,
      PipelineOptions options = {}, ProcessGroup replicas = ProcessGroup(),
      torch::Device device = torch::kCPU);

  /// Computes forward and backward of a batch [N, ...] by the schedule and returns the loss of this
  /// pipeline's batch, detached, on every rank. On the first rank an input that requires a gradient
  /// gets it, and hands it on to what it was computed from. A collective. If a stage fails, the
  /// others' calls fail too, with its reason.
  torch::Tensor step(
      const ChainInput& input, const torch::Tensor& target, const LossFunction& loss);

  /// Computes the output of a batch without gradients, on every rank. A collective.
  torch::Tensor operator()(const ChainInput& input);

  /// Returns this rank's layers.
  const Layers& layers() const { return layers_; }

  /// Returns what this rank did in the last step.
  PipelineTiming timing() const { return runners_.front().timing(); }

 private:
  void run(const std::vector<Action>& actions, const std::function<void()>& then = nullptr);
  Runner& runner() { return runners_.front(); }
  bool is_first() const { return group_.rank() == 0; }
  bool is_last() const { return group_.rank() == last_rank_; }

  ProcessGroup group_;
  torch::Device device_;
  int last_rank_;
  GroupLinks links_;
};

}  // namespace lockstep
