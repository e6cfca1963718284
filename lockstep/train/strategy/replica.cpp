#include "lockstep/train/strategy/replica.h"

#include <mutex>
#include <unordered_set>
#include <utility>

#include "lockstep/parallel/optim/clip_grad_norm.h"
#include "lockstep/parallel/optim/sharded_optimizer.h"
#include "lockstep/parallel/pipeline/pipeline_stage.h"
#include "lockstep/train/optim/optimizer.h"
#include "lockstep/train/optim/training_loss.h"
#include "lockstep/train/strategy/precision_scope.h"
#include "lockstep/train/strategy/replica_kinds.h"
#include "lockstep/train/strategy/stage_balance.h"

namespace lockstep {
namespace {

// LibTorch's generator is one for all threads, and ranks may be threads.
nn::Model seeded_model(const TrainOptions& options, std::int64_t classes) {
  static std::mutex mutex;
  const std::lock_guard lock(mutex);
  torch::manual_seed(static_cast<std::uint64_t>(options.seed));
  return nn::make_model(options.model, classes);
}

std::unique_ptr<Replica> spread(
    const nn::Model& model, const TrainOptions& options, const Layout& layout, const Task& task,
    const RankGroups& groups, const std::vector<Place>& places) {
  if (layout.stages > 1) {
    const std::vector<int> balance =
        stage_balance(options, layout, model, task.image, groups.world);
    std::unique_ptr<Replica> replica;
    if (layout.stages_over_ranks)
      replica = std::make_unique<StageReplica>(options, model, balance, groups);
    else
      replica = std::make_unique<PipelineReplica>(options, model, balance, groups, places);
    replica->cut_by(balance);
    return replica;
  }
  if (options.parallel == Parallel::kDp)
    return std::make_unique<DataParallelReplica>(options, model, groups, places);
  return std::make_unique<ModuleReplica>(options, model, groups);
}

}  // namespace

RankGroups make_rank_groups(const ProcessGroup& world, const Layout& layout) {
  if (!layout.stages_over_ranks) return {world, world, ProcessGroup()};
  PipelineGrid grid = make_pipeline_grid(world, layout.workers);
  return {world, std::move(grid.replicas), std::move(grid.stages)};
}

Replica::Replica(const TrainOptions& options, const RankGroups& groups)
    : precision_(options.precision),
      settings_(options.optimizer),
      smoothing_(options.smoothing),
      groups_(groups),
      scaler_(
          nn::GradScalerOptions().enabled(options.precision == Precision::k16Mixed), groups.world) {
}

void Replica::set_training(bool training) {
  train(training);
  if (training) keep_in_evaluation(start_.frozen);
}

void Replica::share_buffers() {
  if (groups_.replicas.size() == 1) return;
  std::unordered_set<const void*> trained;
  for (const torch::Tensor& parameter : parameters())
    trained.insert(parameter.unsafeGetTensorImpl());
  for (const auto& item : state()) {
    if (trained.contains(item.value().unsafeGetTensorImpl())) continue;
    groups_.replicas.broadcast(item.value(), 0).wait();
  }
}

void Replica::restore_scaler(
    const std::optional<nn::GradScalerState>& state, std::int64_t skipped_steps) {
  scaler_.load(state);
  skipped_steps_ = skipped_steps;
}

torch::ScalarType Replica::image_type() const {
  return precision_ == Precision::kBf16Mixed ? torch::kBFloat16 : torch::kFloat;
}

void Replica::make_optimizer() {
  optimizer_ = lockstep::make_optimizer(settings_, parameters());
  if (settings_.sharded)
    optimizer_ = std::make_unique<ShardedOptimizer>(std::move(optimizer_), groups_.replicas);
}

torch::Tensor Replica::scores(const torch::Tensor& images) {
  const nn::Autocast autocast = autocast_of(precision_);
  return evaluate(images).to(torch::kFloat);
}

torch::Tensor Replica::backward(const Batch& batch, const StepPart& part) {
  if (part.is_first) optimizer_->zero_grad();
  const double factor = part.share;
  const LossFunction loss = [&](const torch::Tensor& scores, const torch::Tensor& labels) {
    const torch::Tensor mean = training_loss(scores, labels, smoothing_);
    return scaler_.scale(factor == 1 ? mean : mean * factor);
  };
  const nn::Autocast autocast = autocast_of(precision_);
  return forward_and_backward(batch, loss, part.is_last) / (factor * scaler_.scale_factor());
}

void Replica::update(double lr) {
  scaler_.unscale_(*optimizer_);
  if (settings_.clip_grad) {
    clip_grad_norm(parameters(), *settings_.clip_grad, groups_.stages, NonFiniteNorm::kSpread);
  }
  set_lr(*optimizer_, lr);
  if (!scaler_.step(*optimizer_)) ++skipped_steps_;
  scaler_.update();
}

std::unique_ptr<Replica> make_replica(
    const TrainOptions& options, const Layout& layout, const Task& task, const RankGroups& groups,
    const std::vector<Place>& places) {
  nn::Model model = seeded_model(options, task.classes);
  StartWeights start = start_with(model, options);
  auto replica = spread(model, options, layout, task, groups, places);
  replica->begin_with(std::move(start));
  return replica;
}

}  // namespace lockstep
