#include "lockstep/train/replica.h"

#include <mutex>
#include <utility>

#include "lockstep/nn/autocast.h"
#include "lockstep/parallel/optim/clip_grad_norm.h"
#include "lockstep/parallel/optim/sharded_optimizer.h"
#include "lockstep/parallel/pipeline/pipeline_stage.h"
#include "lockstep/train/optimizer.h"
#include "lockstep/train/replica_kinds.h"
#include "lockstep/train/stage_balance.h"

namespace lockstep {
namespace {

// LibTorch's generator is one for all threads, and ranks may be threads.
nn::Model seeded_model(const TrainOptions& options, std::int64_t classes) {
  static std::mutex mutex;
  const std::lock_guard lock(mutex);
  torch::manual_seed(static_cast<std::uint64_t>(options.seed));
  return nn::make_model(options.model, classes);
}

}  // namespace

RankGroups make_rank_groups(const ProcessGroup& world, const Layout& layout) {
  if (!layout.stages_over_ranks) return {world, world, ProcessGroup()};
  PipelineGrid grid = make_pipeline_grid(world, layout.workers);
  return {world, std::move(grid.replicas), std::move(grid.stages)};
}

Replica::Replica(const TrainOptions& options, const Layout& layout, const RankGroups& groups)
    : bf16_(options.precision == Precision::kBf16Mixed),
      settings_(options.optimizer),
      replicas_(layout.replicas),
      groups_(groups) {}

void Replica::make_optimizer() {
  optimizer_ = lockstep::make_optimizer(settings_, parameters(), replicas_);
  if (settings_.sharded)
    optimizer_ = std::make_unique<ShardedOptimizer>(std::move(optimizer_), groups_.replicas);
}

torch::Tensor Replica::scores(const torch::Tensor& images) {
  const nn::Autocast autocast(at::kCPU, at::kBFloat16, bf16_);
  return evaluate(images).to(torch::kFloat);
}

torch::Tensor Replica::step(const Batch& batch) {
  optimizer_->zero_grad();
  torch::Tensor loss;
  {
    const nn::Autocast autocast(at::kCPU, at::kBFloat16, bf16_);
    loss = forward_and_backward(batch);
  }
  if (settings_.clip_grad) {
    clip_grad_norm(parameters(), *settings_.clip_grad, groups_.stages, NonFiniteNorm::kSpread);
  }
  optimizer_->step();
  return loss;
}

std::unique_ptr<Replica> make_replica(
    const TrainOptions& options,
    const Layout& layout,
    const Task& task,
    const RankGroups& groups,
    const std::vector<Place>& places) {
  nn::Model model = seeded_model(options, task.classes);
  if (layout.stages > 1) {
    const std::vector<int> balance =
        stage_balance(options, layout, model, task.image, groups.world);
    if (layout.stages_over_ranks)
      return std::make_unique<StageReplica>(options, layout, model, balance, groups);
    return std::make_unique<PipelineReplica>(options, layout, model, balance, groups, places);
  }
  if (options.parallel == Parallel::kDp)
    return std::make_unique<DataParallelReplica>(options, layout, model, groups, places);
  return std::make_unique<ModuleReplica>(options, layout, model, groups);
}

}  // namespace lockstep
