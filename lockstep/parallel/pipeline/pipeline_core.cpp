#include "lockstep/parallel/pipeline/pipeline_core.h"

#include <algorithm>
#include <numeric>
#include <string>
#include <utility>

#include <ATen/ops/cat.h>
#include <ATen/ops/zeros.h>
#include <torch/csrc/autograd/autograd.h>

#include "lockstep/core/error.h"
#include "lockstep/core/spans.h"
#include "lockstep/core/stopwatch.h"

namespace lockstep {
namespace {

std::vector<double> loss_shares(const std::vector<std::int64_t>& sizes, LossReduction reduction) {
  const auto batch =
      static_cast<double>(std::accumulate(sizes.begin(), sizes.end(), std::int64_t{0}));
  std::vector<double> shares;
  for (const std::int64_t size : sizes)
    shares.push_back(reduction == LossReduction::kSum ? 1 : static_cast<double>(size) / batch);
  return shares;
}

// Made here, so that a refusal does not wait for the first step.
void check_places(int places, int stages, const PipelineOptions& options) {
  check(places >= 1, "pipeline: at least one place is needed");
  check(places <= stages, "pipeline: ", places, " places cannot share ", stages,
      stages == 1 ? " stage" : " stages", "; give each place a stage, or fewer places");
  check(options.chunks() >= 1, "pipeline: chunks must be at least 1, not ", options.chunks());
  make_schedule(options.schedule(), places, stages, options.chunks());
}

// Of micro-batches that may lack one; undefined if all do.
torch::Tensor joined_gradients(
    std::vector<torch::Tensor> pieces, const std::vector<std::int64_t>& sizes) {
  const auto found = std::ranges::find_if(pieces, &torch::Tensor::defined);
  if (found == pieces.end()) return {};
  const torch::Tensor example = *found;
  for (std::size_t index = 0; index < sizes.size(); ++index) {
    if (pieces[index].defined()) continue;
    auto shape = example.sizes().vec();
    shape[0] = sizes[index];
    pieces[index] = at::zeros(shape, example.options());
  }
  return at::cat(pieces);
}

ReplicatedState state_of_layers(const Layers& layers) {
  ReplicatedState state;
  for (const auto& layer : layers) state.add(*layer.value().ptr(), layer.key() + ".");
  return state;
}

}  // namespace

std::vector<std::int64_t> micro_batch_sizes(std::int64_t batch, int chunks) {
  check(chunks >= 1, "pipeline: a batch is cut into at least one micro-batch, not ", chunks);
  check(batch >= 1, "pipeline: the batch is empty");
  std::vector<std::int64_t> sizes;
  for (std::int64_t chunk = 0; chunk < chunks && chunk < batch; ++chunk)
    sizes.push_back(batch / chunks + (chunk < batch % chunks ? 1 : 0));
  return sizes;
}

std::vector<torch::Tensor> split_batch(
    const torch::Tensor& batch, const std::vector<std::int64_t>& sizes) {
  return batch.split_with_sizes(sizes, 0);
}

std::vector<StageSettings> plan_stages(
    const Layers& layers, const std::vector<int>& balance, const PipelineOptions& options) {
  const std::vector<Layers> stages = cut(layers, balance);
  const auto crossing = skips_across(stages);
  std::vector<StageSettings> settings;
  for (std::size_t index = 0; index < stages.size(); ++index) {
    settings.push_back({.index = static_cast<int>(index),
        .layers = stages[index],
        .skips_in = index > 0 ? crossing[index - 1] : std::vector<std::string>(),
        .skips_out = index < crossing.size() ? crossing[index] : std::vector<std::string>(),
        .checkpoint = options.checkpoint(),
        .deferred_batch_norm = options.deferred_batch_norm()});
  }
  return settings;
}

std::vector<std::vector<Action>> actions_of(const Schedule& schedule, bool forward) {
  std::vector<std::vector<Action>> chosen;
  for (const auto& actions : schedule.actions) {
    auto& rank = chosen.emplace_back();
    for (const Action& action : actions) {
      if ((action.kind == ActionKind::kForward) == forward) rank.push_back(action);
    }
  }
  return chosen;
}

void check_step(const ChainInput& input, const torch::Tensor& target) {
  check(torch::GradMode::is_enabled(), "pipeline: a step needs gradients, and they are off");
  check(target.dim() > 0 && input.batch_size() == target.size(0), "pipeline: input ",
      input.tensors.front().sizes(), " and target ", target.sizes(),
      " must have the same batch size");
}

LossSum::LossSum(LossFunction loss, const torch::Tensor& target,
    const std::vector<std::int64_t>& sizes, LossReduction reduction)
    : loss_(std::move(loss)),
      targets_(split_batch(target, sizes)),
      shares_(loss_shares(sizes, reduction)),
      losses_(sizes.size()) {}

// Called again when a checkpointed stage computes anew; the same loss is then kept again.
torch::Tensor LossSum::operator()(torch::nn::AnyValue& output, int micro_batch) {
  const auto index = static_cast<std::size_t>(micro_batch);
  auto* const scores = output.try_get<torch::Tensor>();
  check(scores != nullptr, "pipeline: a loss needs a last stage that gives one tensor");
  const torch::Tensor loss = loss_(*scores, targets_.at(index).to(scores->device()));
  check(loss.numel() == 1, "pipeline: the loss function gave ", loss.sizes(),
      " instead of a scalar; reduce it by mean or sum");
  const torch::Tensor share = shares_[index] == 1 ? loss : loss * shares_[index];
  losses_[index] = share.detach();
  return share;
}

torch::Tensor LossSum::sum() const {
  torch::Tensor sum = losses_.front().clone();
  for (std::size_t index = 1; index < losses_.size(); ++index) sum += losses_[index];
  return sum;
}

Runner::Runner(std::vector<Stage> own, int stages, int ranks, Links& links)
    : own_(std::move(own)), stages_(stages), ranks_(ranks), links_(links) {}

Stage& Runner::stage(int index) {
  for (Stage& candidate : own_) {
    if (candidate.index() == index) return candidate;
  }
  throw Error(concat("pipeline: stage ", index, " is not on this rank"));
}

bool Runner::is_own(int stage) const { return own_.front().index() % ranks_ == stage % ranks_; }

void Runner::begin_step(const StepPlan& plan) {
  plan_ = plan;
  here_.clear();
  StepPlan before_the_last = plan;
  before_the_last.loss = nullptr;
  for (Stage& stage : own_) stage.begin_step(stage.index() + 1 == stages_ ? plan : before_the_last);
}

void Runner::put(const Address& address, Payload payload) {
  here_.insert_or_assign(address, std::move(payload));
}

Payload Runner::take(const Address& address) {
  auto found = here_.extract(address);
  if (found.empty()) throw Error("pipeline: no stage has produced the value that was asked for");
  return std::move(found.mapped());
}

Payload Runner::arriving(const Address& address) {
  if (here_.contains(address)) return take(address);
  return links_.receive(address);
}

// What lies outside of the pipeline stays here for take().
void Runner::hand_on(const Address& address, Payload payload) {
  const bool outside = address.stage < 0 || address.stage == stages_;
  if (outside || is_own(address.stage)) {
    put(address, std::move(payload));
  } else {
    links_.send(address, payload);
  }
}

void Runner::run(const std::vector<Action>& actions, const std::function<void()>& then) {
  const Stopwatch watch;
  const double waited = links_.waited_seconds();
  for (const Action& action : actions) {
    links_.poll();
    run(action);
  }
  links_.flush();
  if (then) then();
  timing_ = {watch.seconds(), links_.waited_seconds() - waited};
}

void Runner::run(const Action& action) {
  Stage& own = stage(action.stage);
  switch (action.kind) {
    case ActionKind::kForward:
      return forward(own, action);
    case ActionKind::kBackward:
    case ActionKind::kBackwardInput:
      return backward(own, action);
    case ActionKind::kBackwardWeight: {
      const SpanScope span(Activity::kBackward, "backward of weights");
      return own.backward_weight(action.micro_batch);
    }
    default:
      return;  // transfers follow from the others
  }
}

void Runner::forward(Stage& own, const Action& action) {
  const Payload input = arriving({Direction::kForward, action.stage, action.micro_batch});
  Payload output = [&] {
    const SpanScope span(Activity::kForward, "forward");
    return own.forward(action.micro_batch, input);
  }();
  hand_on({Direction::kForward, action.stage + 1, action.micro_batch}, std::move(output));
}

void Runner::backward(Stage& own, const Action& action) {
  const bool from_loss = plan_.loss != nullptr && action.stage + 1 == stages_;
  const Payload gradient =
      from_loss ? Payload() : arriving({Direction::kBackward, action.stage, action.micro_batch});
  const bool whole = action.kind == ActionKind::kBackward;
  Payload back = [&] {
    const SpanScope span(Activity::kBackward, "backward");
    return whole ? own.backward(action.micro_batch, gradient)
                 : own.backward_input(action.micro_batch, gradient);
  }();
  hand_on({Direction::kBackward, action.stage - 1, action.micro_batch}, std::move(back));
}

void Runner::end_step() {
  for (Stage& stage : own_) stage.end_step();
  here_.clear();
}

void Runner::put_inputs(const ChainInput& input, const std::vector<std::int64_t>& sizes) {
  const ValueForm form = input.tensors.size() == 1 ? ValueForm::kTensor : ValueForm::kVector;
  std::vector<Payload> payloads(sizes.size(), {form, {}, 0});
  for (const torch::Tensor& tensor : input.tensors) {
    for (std::size_t index = 0; const torch::Tensor& piece : split_batch(tensor.detach(), sizes))
      payloads[index++].values.push_back(piece.detach().set_requires_grad(tensor.requires_grad()));
  }
  for (int index = 0; Payload & payload : payloads)
    put({Direction::kForward, 0, index++}, std::move(payload));
}

torch::Tensor Runner::take_outputs(std::size_t micro_batches) {
  std::vector<torch::Tensor> pieces;
  for (std::size_t index = 0; index < micro_batches; ++index) {
    const Payload output = take({Direction::kForward, stages_, static_cast<int>(index)});
    check(output.form == ValueForm::kTensor,
        "pipeline: the last stage must give one tensor to be called like a module");
    pieces.push_back(output.values.at(0).detach());
  }
  return at::cat(pieces);
}

void Runner::put_output_gradients(
    const torch::Tensor& gradient, const std::vector<std::int64_t>& sizes) {
  for (int index = 0; const torch::Tensor& piece : split_batch(gradient, sizes))
    put({Direction::kBackward, stages_ - 1, index++}, {ValueForm::kTensor, {piece}, 0});
}

std::vector<torch::Tensor> Runner::take_input_gradients(const std::vector<std::int64_t>& sizes) {
  std::vector<std::vector<torch::Tensor>> pieces;  // of each tensor
  for (std::size_t index = 0; index < sizes.size(); ++index) {
    const Payload back = take({Direction::kBackward, -1, static_cast<int>(index)});
    pieces.resize(back.values.size());
    for (std::size_t i = 0; i < pieces.size(); ++i) pieces[i].push_back(back.values[i]);
  }
  std::vector<torch::Tensor> whole;
  for (auto& of_tensor : pieces) whole.push_back(joined_gradients(std::move(of_tensor), sizes));
  return whole;
}

void Runner::hand_on_input_gradients(
    const ChainInput& input, const std::vector<std::int64_t>& sizes) {
  if (!input.requires_grad()) return;
  const std::vector<torch::Tensor> gradients = take_input_gradients(sizes);
  std::vector<torch::Tensor> roots, arriving;
  for (std::size_t i = 0; i < gradients.size(); ++i) {
    if (!input.tensors[i].requires_grad() || !gradients[i].defined()) continue;
    roots.push_back(input.tensors[i]);
    arriving.push_back(gradients[i].to(input.tensors[i].device()));
  }
  if (!roots.empty()) torch::autograd::backward(roots, arriving);
}

PipelineCore::PipelineCore(const Layers& layers, const std::vector<int>& balance,
    const PipelineOptions& options, int ranks, std::optional<int> rank)
    : options_(options), stages_(static_cast<int>(balance.size())), ranks_(ranks) {
  check_places(ranks, stages_, options);
  settings_ = plan_stages(layers, balance, options);
  for (const StageSettings& stage : settings_) {
    if (rank && stage.index % ranks != *rank) continue;
    for (const auto& layer : stage.layers) layers_.insert(layer.key(), layer.value());
  }
}

void PipelineCore::add_runner(int rank, torch::Device device, Links& links) {
  std::vector<Stage> own;
  for (StageSettings stage : settings_) {
    if (stage.index % ranks_ != rank) continue;
    stage.device = device;
    own.emplace_back(std::move(stage));
  }
  runners_.emplace_back(std::move(own), stages_, ranks_, links);
}

// After the runners are made: the parameters must be where the stages compute.
void PipelineCore::connect(ProcessGroup replicas) {
  if (replicas.size() == 1) return;
  sync_.emplace(state_of_layers(layers_), std::move(replicas), DistributedDataParallelOptions());
  sync_->reducer().set_synchronised(false);
}

void PipelineCore::before_step() {
  if (!sync_) return;
  sync_->check_unchanged(state_of_layers(layers_));
  sync_->reducer().set_synchronised(!accumulates_);
  sync_->before_forward(true);
  sync_->reducer().set_synchronised(false);
}

void PipelineCore::after_step() {
  if (sync_ && !accumulates_) sync_->reduce_accumulated();
}

void PipelineCore::train(bool on) {
  for (auto& layer : layers_) layer.value().ptr()->train(on);
}

std::int64_t PipelineCore::recomputed() const {
  std::int64_t count = 0;
  for (const Runner& runner : runners_) {
    for (const Stage& stage : runner.stages()) count += stage.recomputed();
  }
  return count;
}

const Schedule& PipelineCore::schedule_for(std::size_t micro_batches) {
  const auto found = schedules_.find(micro_batches);
  if (found != schedules_.end()) return found->second;
  const auto made =
      make_schedule(options_.schedule(), ranks_, stages_, static_cast<int>(micro_batches));
  return schedules_.emplace(micro_batches, made).first->second;
}

}  // namespace lockstep
