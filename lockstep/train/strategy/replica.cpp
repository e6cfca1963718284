#include "lockstep/train/strategy/replica.h"

#include <mutex>
#include <unordered_set>
#include <utility>

#include "lockstep/core/spans.h"
#include "lockstep/parallel/operators/operator_rules.h"
#include "lockstep/parallel/optim/clip_grad_norm.h"
#include "lockstep/parallel/optim/sharded_optimizer.h"
#include "lockstep/parallel/pipeline/pipeline_stage.h"
#include "lockstep/train/optim/optimizer.h"
#include "lockstep/train/optim/set_lr.h"
#include "lockstep/train/profile/step_profiler.h"
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

std::unique_ptr<Replica> spread(const PreparedModel& prepared, const TrainOptions& options,
    const Layout& layout, const RankGroups& groups, const std::vector<Place>& places) {
  if (layout.stages > 1 && layout.stages_over_ranks)
    return std::make_unique<StageReplica>(options, groups, prepared, places.front().device);
  if (layout.stages > 1)
    return std::make_unique<PipelineReplica>(options, groups, prepared, places);
  return std::make_unique<ModuleReplica>(options, groups, prepared, places);
}

}  // namespace

RankGroups make_rank_groups(const ProcessGroup& world, const Layout& layout) {
  if (!layout.stages_over_ranks) return {world, world, ProcessGroup()};
  PipelineGrid grid = make_pipeline_grid(world, layout.workers);
  return {world, std::move(grid.replicas), std::move(grid.stages)};
}

Replica::Replica(const TrainOptions& options, const RankGroups& groups,
    const PreparedModel& prepared, torch::Device device)
    : options_(options),
      loss_(options.loss, options.smoothing),
      groups_(groups),
      copier_(device),
      scaler_(nn::GradScalerOptions().enabled(options.precision == Precision::k16Mixed),
          groups.world, device),
      start_(prepared.start),
      balance_(prepared.balance) {}

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

// A copy draws its first weights, which LibTorch's generator must not notice: it belongs to all
// threads, and snapshots have it.
std::vector<LayerCosts> Replica::chain_costs(const torch::Tensor& images) {
  const RandomStream stream(make_stream_generator(static_cast<std::uint64_t>(options_.seed),
      static_cast<std::size_t>(groups_.replicas.rank()), 0));
  const nn::Model copy = copy_of_whole_model();
  if (copy.is_empty()) return {};
  const nn::Autocast shorter = autocast();
  return lockstep::chain_costs(copy, copier_(images));
}

torch::ScalarType Replica::image_type() const {
  return options_.precision == Precision::kBf16Mixed ? torch::kBFloat16 : torch::kFloat;
}

void Replica::make_optimizer() {
  optimizer_ = lockstep::make_optimizer(options_.optimizer, parameters());
  if (options_.optimizer.sharded)
    optimizer_ = std::make_unique<ShardedOptimizer>(std::move(optimizer_), groups_.replicas);
}

nn::Autocast Replica::autocast() const { return autocast_of(options_.precision, device().type()); }

torch::Tensor Replica::scores(const Batch& batch) {
  const nn::Autocast shorter = autocast();
  std::vector<torch::Tensor> inputs = batch.input_tensors();
  for (torch::Tensor& input : inputs) input = copier_(input);
  return evaluate(inputs).to(torch::kFloat);
}

// Note [What a step draws]
// Dropout and the like draw from a stream of their own for each seed, step, part of a step and
// replica, which the stages and replicas within a process divide further. So replicas drop
// different units; processes and threads, or a resume, drop the same ones; nothing is left to the
// order in which threads come to LibTorch's generator, of which a process has one.
torch::Tensor Replica::backward(const Batch& batch, const StepPart& part, std::int64_t step) {
  if (part.number == 0) optimizer_->zero_grad();
  const double factor = part.share;
  const LossFunction loss = [&](const torch::Tensor& scores, const torch::Tensor& labels) {
    const torch::Tensor mean = loss_.mean(scores, labels);
    return scaler_.scale(factor == 1 ? mean : mean * factor);
  };
  const std::uint64_t seed = stream_seed(static_cast<std::uint64_t>(options_.seed),
      static_cast<std::size_t>(step), static_cast<std::size_t>(part.number));
  const RandomStream stream(
      make_stream_generator(seed, static_cast<std::size_t>(groups_.replicas.rank()), 0));
  const torch::Tensor scaled = forward_and_backward(copied(batch), loss, part.is_last);
  return scaler_.unscaled(scaled) / factor;
}

Batch Replica::copied(const Batch& batch) {
  const SpanScope span(Activity::kCopy, "copy");
  return batch.map(copier_);
}

torch::Tensor Replica::update(double lr) {
  const SpanScope span(Activity::kOptimizer, "optimizer");
  scaler_.unscale_(*optimizer_);
  if (options_.optimizer.clip_grad)
    clip_gradients(parameters(), *options_.optimizer.clip_grad, groups_.stages, device());
  set_lr(*optimizer_, lr);
  scaler_.step_without_wait(*optimizer_);
  const torch::Tensor skipped = scaler_.overflowed();
  scaler_.update();
  return skipped;
}

std::unique_ptr<Replica> make_replica(const TrainOptions& options, const Layout& layout,
    const Task& task, const RankGroups& groups, const std::vector<Place>& given,
    const std::vector<Rehearsed>& rehearsed) {
  const std::vector<Place> places = given.empty() ? std::vector<Place>(1) : given;
  PreparedModel prepared{.model = seeded_model(options, task.classes), .start = {}};
  check_inputs(options, layout, task, prepared.model);
  prepared.start = start_with(prepared.model, options);
  rehearse(options, task, prepared.model, prepared.start, rehearsed);
  if (layout.stages > 1)
    prepared.balance =
        stage_balance(options, layout, prepared.model, task, places.front().device, groups.world);
  return spread(prepared, options, layout, groups, places);
}

}  // namespace lockstep
