#include "lockstep/train/strategy/replica.h"

#include <algorithm>
#include <cmath>
#include <mutex>
#include <unordered_set>
#include <utility>

#include <ATen/CPUGeneratorImpl.h>

#include "lockstep/core/spans.h"
#include "lockstep/nn/fused_optimizers.h"
#include "lockstep/nn/models/language/gpt2.h"
#include "lockstep/nn/models/language/token_loss.h"
#include "lockstep/nn/models/row_linear.h"
#include "lockstep/parallel/ddp/comm_hook.h"
#include "lockstep/parallel/operators/operator_rules.h"
#include "lockstep/parallel/optim/clip_grad_norm.h"
#include "lockstep/parallel/optim/sharded_optimizer.h"
#include "lockstep/train/optim/set_lr.h"
#include "lockstep/train/profile/step_profiler.h"
#include "lockstep/train/state/whole_model.h"
#include "lockstep/train/strategy/recomputed_model.h"
#include "lockstep/train/task/make_task.h"

namespace lockstep {

namespace {

// LibTorch's generator is one for all threads, and ranks may be threads.
PreparedModel seeded_model(const TrainOptions& options, const SampleForm& form) {
  static std::mutex mutex;
  const std::lock_guard lock(mutex);
  torch::manual_seed(static_cast<std::uint64_t>(options.seed));
  const bool is_later = is_initialised_later(options);
  PreparedModel prepared{.model = make_net(options, form, is_later), .task = nullptr, .start = {}};
  const at::Generator& generator = at::detail::getDefaultCPUGenerator();
  if (is_later) prepared.init = init_later(prepared.model, generator.clone());
  return prepared;
}

// A layer that is computed again alone gives what its first forward gave, replicas of `dp` give
// theirs to one loss, and one that is sharded has its weight while it computes.
bool loss_takes_factors(
    const TrainOptions& options, const PreparedModel& prepared, const Layout& layout) {
  const PipelineSettings& pipeline = options.pipeline;
  const bool is_alone =
      layout.stages == 1 && pipeline.checkpoint != Checkpoint::kNever &&
      is_computed_again(prepared.model->layers().keys().back(), pipeline.checkpoint_layers);
  return prepared.task->takes_deferred_scores() && options.parallel != Parallel::kDp &&
         options.parallel != Parallel::kFsdp && !is_alone;
}

std::unique_ptr<Replica> spread(const PreparedModel& prepared, const TrainOptions& options,
    const Layout& layout, const RankGroups& groups, const std::vector<Place>& places) {
  if (loss_takes_factors(options, prepared, layout)) nn::defer_scores(*prepared.model);
  if (layout.stages > 1 && layout.stages_over_ranks)
    return std::make_unique<StageReplica>(options, groups, prepared, places.front().device);
  if (layout.stages > 1)
    return std::make_unique<PipelineReplica>(options, groups, prepared, places);
  if (options.parallel == Parallel::kFsdp)
    return std::make_unique<ShardedReplica>(options, groups, prepared, places.front().device);
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
      task_(prepared.task),
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
std::vector<LayerCosts> Replica::chain_costs(const ChainInput& input) {
  const RandomStream stream(make_stream_generator(static_cast<std::uint64_t>(options_.seed),
      static_cast<std::size_t>(groups_.replicas.rank()), 0));
  const nn::Model copy = copy_of_whole_model();
  if (copy.is_empty()) return {};
  const nn::Autocast shorter = autocast();
  std::vector<torch::Tensor> copied;
  for (const torch::Tensor& tensor : input.tensors) copied.push_back(copier_(tensor));
  return lockstep::chain_costs(copy, copied);
}

torch::ScalarType Replica::image_type() const {
  const bool may_be_shorter = options_.precision == Precision::kBf16Mixed;
  return may_be_shorter && !task_->compares_inputs() ? torch::kBFloat16 : torch::kFloat;
}

void Replica::make_optimizer() {
  optimizer_ = lockstep::make_optimizer(options_.optimizer, parameters());
  if (options_.optimizer.sharded)
    optimizer_ = std::make_unique<ShardedOptimizer>(std::move(optimizer_), groups_.replicas);
}

nn::Autocast Replica::autocast() const { return autocast_of(options_.precision, device().type()); }

torch::Tensor Replica::output(const Batch& batch) {
  const nn::Autocast shorter = autocast();
  std::vector<torch::Tensor> inputs = task_->measured_inputs(batch);
  for (torch::Tensor& input : inputs) input = copier_(input);
  return at_least_float(evaluate(inputs));
}

// Note [What a step draws]
// Dropout and the like draw from a stream of their own for each seed, step, part of a step and
// replica, which the stages and replicas within a process divide further. So replicas drop
// different units; processes and threads, or a resume, drop the same ones; nothing is left to the
// order in which threads come to LibTorch's generator, of which a process has one.
torch::Tensor Replica::backward(const Batch& batch, const StepPart& part, std::int64_t step) {
  if (part.number == 0) optimizer_->zero_grad();
  begin_turn(part.turn);
  const double factor = part.share;
  const LossFunction loss = [&](const torch::Tensor& output, const torch::Tensor& target) {
    const torch::Tensor mean = task_->loss(output, target);
    return scaler_.scale(factor == 1 ? mean : mean * factor);
  };
  const std::uint64_t seed = stream_seed(static_cast<std::uint64_t>(options_.seed),
      static_cast<std::size_t>(step), static_cast<std::size_t>(part.number) + part.turn);
  const RandomStream stream(
      make_stream_generator(seed, static_cast<std::size_t>(groups_.replicas.rank()), 0));
  const Batch copied = [&] {
    const SpanScope span(Activity::kCopy, "copy");
    return batch.map(copier_);
  }();
  const torch::Tensor scaled = forward_and_backward(copied, loss, part.is_last);
  return scaler_.unscaled(scaled) / factor;
}

torch::Tensor Replica::update(double lr, std::size_t turn) {
  const SpanScope span(Activity::kOptimizer, "optimizer");
  scaler_.unscale_(*optimizer_);
  if (options_.optimizer.clip_grad)
    clip_gradients(parameters(), *options_.optimizer.clip_grad, holders(), device());
  set_lr(*optimizer_, lr * lr_factor(turn));
  scaler_.step_without_wait(*optimizer_);
  const torch::Tensor skipped = scaler_.overflowed();
  scaler_.update();
  return skipped;
}

std::string Replica::parameters_hash() {
  return agreed_parameters_hash(parameters(), groups_.replicas, groups_.stages);
}

std::unique_ptr<Replica> make_replica(const TrainOptions& options, const Layout& layout,
    const SampleForm& form, const RankGroups& groups, const std::vector<Place>& given,
    const std::vector<Rehearsed>& rehearsed) {
  const std::vector<Place> places = given.empty() ? std::vector<Place>(1) : given;
  PreparedModel prepared = seeded_model(options, form);
  prepared.task = make_task(options, form, prepared.model);
  check_inputs(options, layout, form, prepared.model);
  check_task(options, form, *prepared.task, prepared.model);
  prepared.start = start_with(prepared.model, options);
  if (prepared.start.init) prepared.init = std::exchange(prepared.start.init, nullptr);
  // Stages are elsewhere, and each has only a part of the memory.
  const torch::Device device = layout.stages > 1 ? torch::kCPU : places.front().device;
  rehearse(options, form, *prepared.task, prepared.model, prepared.start, rehearsed, device);
  if (layout.stages > 1)
    prepared.balance = stage_balance(
        options, layout, prepared.model, form, *prepared.task, places.front().device, groups.world);
  return spread(prepared, options, layout, groups, places);
}

namespace {

PipelineOptions pipeline_options(const TrainOptions& options) {
  return PipelineOptions()
      .chunks(chunks_of(options))
      .schedule(schedule_of(options))
      .checkpoint(options.pipeline.checkpoint)
      .deferred_batch_norm(options.pipeline.deferred_batch_norm);
}

// Before the optimizer and the wrappers, which keep its tensors.
std::shared_ptr<nn::MultiInputModule> on_device(
    const nn::Model& model, const TrainOptions& options, torch::Device device) {
  model.ptr()->to(device);
  const bool is_alone = options.parallel != Parallel::kFsdp;  // which calls the layers itself
  if (options.pipeline.checkpoint == Checkpoint::kNever || !is_alone) return model.ptr();
  return std::make_shared<RecomputedModel>(
      model, options.model, options.pipeline.checkpoint_layers);
}

}  // namespace

ModuleReplica::ModuleReplica(const TrainOptions& options, const RankGroups& groups,
    const PreparedModel& prepared, const std::vector<Place>& places)
    : Replica(options, groups, prepared, places.front().device),
      net_(prepared.model),
      model_(on_device(prepared.model, options, places.front().device)),
      turns_(net_.ptr()) {
  if (options.parallel == Parallel::kDp) threads_.emplace(model_, places);
  for (std::size_t turn = 0; options.parallel == Parallel::kDdp && turn < turns_.size(); ++turn) {
    turns_.begin(turn);
    ranks_.emplace_back(model_, groups.replicas, ddp_options(options, scaler_of_loss()));
  }
  turns_.begin(0);
  make_optimizer();
}

void ModuleReplica::begin_turn(std::size_t turn) {
  turns_.begin(turn);
  turn_ = turn;
}

// With frozen batch norms in evaluation, as in a step.
nn::Model ModuleReplica::copy_of_whole_model() {
  if (threads_) return nullptr;
  const bool was_training = model_->is_training();
  set_training(true);
  auto copy = std::dynamic_pointer_cast<nn::ModelImpl>(net_->clone());
  set_training(was_training);
  return nn::Model(std::move(copy));
}

torch::Tensor ModuleReplica::forward(const std::vector<torch::Tensor>& inputs) {
  if (threads_) return (*threads_)(inputs);
  return ranks_.empty() ? model_->forward(inputs) : ranks_[turn_](inputs);
}

torch::Tensor ModuleReplica::forward_and_backward(
    const Batch& batch, const LossFunction& loss, bool is_last_part) {
  std::optional<NoSync> accumulation;
  if (!ranks_.empty() && !is_last_part) accumulation.emplace(ranks_[turn_].no_sync());
  const torch::Tensor value = [&] {
    const nn::Autocast shorter = autocast();
    const SpanScope span(Activity::kForward, "forward");
    return loss(forward(task()->inputs(batch)), task()->target(batch));
  }();
  const SpanScope span(Activity::kBackward, "backward");
  value.backward();
  return value.detach();
}

double ModuleReplica::communication_seconds() const {
  double seconds = 0;
  for (const auto& turn : ranks_) seconds += turn.communication_seconds();
  return seconds;
}

PipelineReplica::PipelineReplica(const TrainOptions& options, const RankGroups& groups,
    const PreparedModel& prepared, const std::vector<Place>& places)
    : Replica(options, groups, prepared, places.front().device),
      layers_(prepared.model->layers()),
      pipeline_(layers_, prepared.balance, places, pipeline_options(options), groups.replicas) {
  make_optimizer();
}

torch::Tensor PipelineReplica::forward_and_backward(
    const Batch& batch, const LossFunction& loss, bool is_last_part) {
  std::optional<PipelineCore::Accumulation> accumulation;
  if (!is_last_part) accumulation.emplace(pipeline_.no_sync());
  const nn::Autocast shorter = autocast();  // each stage ends it in its backward
  return pipeline_.step(task()->inputs(batch), task()->target(batch), loss);
}

StageReplica::StageReplica(const TrainOptions& options, const RankGroups& groups,
    const PreparedModel& prepared, torch::Device device)
    : Replica(options, groups, prepared, device),
      stage_(prepared.model->layers(), prepared.balance, groups.stages, pipeline_options(options),
          groups.replicas, device) {
  make_optimizer();
}

torch::Tensor StageReplica::forward_and_backward(
    const Batch& batch, const LossFunction& loss, bool is_last_part) {
  std::optional<PipelineCore::Accumulation> accumulation;
  if (!is_last_part) accumulation.emplace(stage_.no_sync());
  const nn::Autocast shorter = autocast();  // as above
  torch::Tensor value = stage_.step(task()->inputs(batch), task()->target(batch), loss);
  waited_seconds_ += stage_.timing().waited;
  return value;
}

namespace {

// The linear layers of our nets are not LibTorch's.
bool is_cast(const torch::nn::Module& module) {
  return autocast_casts(module) || nn::is_column_linear(module) || nn::is_row_linear(module);
}

// The nets of a plugin may read a layer's parameters beside autocast.
std::function<bool(const torch::nn::Module&)> casts_of(const TrainOptions& options) {
  if (options.precision == Precision::k32 || !options.plugin.empty()) return nullptr;
  return is_cast;
}

std::optional<at::ScalarType> type_of_gradients(CommHookKind hook) {
  if (hook == CommHookKind::kNone) return std::nullopt;
  return hook == CommHookKind::kFp16 ? torch::kHalf : torch::kBFloat16;
}

FullyShardedDataParallelOptions sharding_options(
    const TrainOptions& options, const PreparedModel& prepared) {
  return FullyShardedDataParallelOptions()
      .casts(casts_of(options))
      .gradient_type(type_of_gradients(options.gradients.comm_hook.kind))
      .reshard(options.gradients.reshard)
      .replicas(options.gradients.replicas)
      .checkpoint(options.pipeline.checkpoint != Checkpoint::kNever)
      .param_init_fn(prepared.init)
      .sync_batch_norm(options.sync_batch_norm);
}

using ShardedNet = FullyShardedDataParallel<std::shared_ptr<nn::MultiInputModule>>;

// A chain without the net's parameters is a function around one that cannot be cut: one unit.
ShardedNet sharded_net(std::shared_ptr<nn::MultiInputModule> module, const PreparedModel& prepared,
    const ProcessGroup& ranks, const TrainOptions& options) {
  const Layers layers = prepared.model->layers();
  const auto sharding = sharding_options(options, prepared);
  if (parameters_of(layers).size() == parameters_of(*prepared.model).size())
    return {std::move(module), layers, ranks, sharding};
  check(options.pipeline.checkpoint == Checkpoint::kNever,
      "train: --checkpoint computes the layers of a model again, one by one, and ", options.model,
      " has only one");
  return {std::move(module), ranks, sharding};
}

}  // namespace

ShardedReplica::ShardedReplica(const TrainOptions& options, const RankGroups& groups,
    const PreparedModel& prepared, torch::Device device)
    : Replica(options, groups, prepared, device),
      net_(prepared.model),
      sharded_(sharded_net(
          on_device(prepared.model, options, device), prepared, groups.replicas, options)) {
  nn::sum_losses(*net_, kIgnoredTarget, options.smoothing);
  const auto named = net_->named_parameters();
  for (ParameterPart& part : sharded_.all_parts())
    parts_.emplace(named[part.name].unsafeGetTensorImpl(), std::move(part));
  make_optimizer();
}

// Of a parameter with two names the part stands under both.
nn::NamedTensors ShardedReplica::state() const {
  nn::NamedTensors state("Tensor");
  for (const auto& item : nn::named_state(*net_)) {
    const auto part = parts_.find(item.value().unsafeGetTensorImpl());
    if (part == parts_.end() || item.value().numel() == 0)
      state.insert(item.key(), item.value());
    else if (part->second.tensor.defined())
      state.insert(item.key(), part->second.tensor);
  }
  return state;
}

TensorRanges ShardedReplica::ranges() const {
  TensorRanges ranges;
  for (const auto& item : nn::named_state(*net_)) {
    const auto found = parts_.find(item.value().unsafeGetTensorImpl());
    if (found == parts_.end() || item.value().numel() == 0) continue;
    ranges.emplace(item.key(), range_of(found->second));
  }
  return ranges;
}

// The gradients of each part of a step are averaged: whole ones would take the memory of a model.
torch::Tensor ShardedReplica::forward_and_backward(
    const Batch& batch, const LossFunction& loss, bool /*is_last_part*/) {
  const torch::Tensor value = [&] {
    const nn::Autocast shorter = autocast();
    const SpanScope span(Activity::kForward, "forward");
    return loss(sharded_(task()->measured_inputs(batch)), task()->target(batch));
  }();
  const SpanScope span(Activity::kBackward, "backward");
  value.backward();
  return value.detach();
}

// As of the whole model where its layers are in the order of its parameters.
std::string ShardedReplica::parameters_hash() {
  std::uint64_t hash = kHashOfNothing;
  sharded_.visit_whole([&](const lockstep::NamedTensors& some) {
    std::vector<torch::Tensor> values;
    for (const auto& entry : some) values.push_back(entry.second);
    hash = lockstep::parameters_hash(values, hash);
  });
  return agreed_hash(hash, groups().replicas);
}

namespace {

// LibTorch treats a group's option with a default value as unset, and puts the optimizer's in its
// place: so the decay is set once the groups are there.
template <typename Optimizer, typename Options>
std::unique_ptr<torch::optim::Optimizer> optimizer_of(const OptimizerSettings& settings,
    const std::vector<torch::Tensor>& parameters, const Options& options) {
  std::vector<torch::Tensor> kept, decaying;
  for (const auto& parameter : parameters) {
    const bool decays = settings.weight_decay_on == DecayOn::kAll || parameter.dim() > 1;
    (decays ? decaying : kept).push_back(parameter);
  }
  std::vector<torch::optim::OptimizerParamGroup> groups;
  if (!kept.empty()) groups.emplace_back(kept);
  if (!decaying.empty()) groups.emplace_back(decaying);
  auto optimizer = std::make_unique<Optimizer>(groups, options);
  for (std::size_t group = 0; group < groups.size(); ++group) {
    const bool decays = kept.empty() || group > 0;
    static_cast<Options&>(optimizer->param_groups()[group].options())
        .weight_decay(decays ? settings.weight_decay : 0);
  }
  return optimizer;
}

template <typename Options>
Options adam_options(const OptimizerSettings& settings) {
  const AdamBetas betas = settings.betas.value_or(AdamBetas());
  return Options(settings.lr)
      .eps(settings.eps.value_or(usual_eps(settings.kind)))
      .betas({betas.first, betas.second});
}

}  // namespace

std::unique_ptr<torch::optim::Optimizer> make_optimizer(
    const OptimizerSettings& settings, const std::vector<torch::Tensor>& parameters) {
  using torch::optim::AdamOptions, torch::optim::AdamWOptions, torch::optim::SGDOptions;
  if (settings.kind == OptimizerKind::kSgd) {
    return optimizer_of<nn::SGD>(
        settings, parameters, SGDOptions(settings.lr).momentum(settings.momentum));
  }
  if (settings.kind == OptimizerKind::kAdamW)
    return optimizer_of<nn::AdamW>(settings, parameters, adam_options<AdamWOptions>(settings));
  return optimizer_of<nn::Adam>(settings, parameters, adam_options<AdamOptions>(settings));
}

namespace {

CommHook hook_of(const CommHookSettings& settings, const nn::GradScaler& scaler) {
  switch (settings.kind) {
    case CommHookKind::kNone:
      return nullptr;
    case CommHookKind::kFp16:
      return fp16_compress_hook;
    case CommHookKind::kBf16:
      return bf16_compress_hook;
    case CommHookKind::kPowerSgd:
      break;
  }
  auto options = PowerSgdOptions().rank(settings.rank).start_step(settings.start_step);
  if (scaler.is_enabled())
    options.loss_scale([&scaler](const torch::Device& device) { return scaler.scale_on(device); });
  return PowerSgd(options);
}

}  // namespace

DistributedDataParallelOptions ddp_options(
    const TrainOptions& options, const nn::GradScaler& scaler) {
  const GradientSettings& settings = options.gradients;
  auto made = DistributedDataParallelOptions()
                  .sync_batch_norm(options.sync_batch_norm)
                  .find_unused_parameters(settings.find_unused_parameters)
                  .comm_hook(hook_of(settings.comm_hook, scaler));
  constexpr double kMebibyte = 1 << 20;
  if (settings.bucket_mb)
    made.bucket_bytes(std::max<std::int64_t>(1, std::llround(*settings.bucket_mb * kMebibyte)));
  return made;
}

}  // namespace lockstep
