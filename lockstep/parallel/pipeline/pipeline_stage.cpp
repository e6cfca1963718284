#include "lockstep/parallel/pipeline/pipeline_stage.h"

#include <functional>
#include <utility>

#include "lockstep/core/error.h"
#include "lockstep/core/spans.h"
#include "lockstep/core/stopwatch.h"
#include "lockstep/parallel/ddp/replicated_state.h"
#include "lockstep/parallel/operators/operator_rules.h"
#include "lockstep/parallel/pipeline/links.h"
#include "lockstep/parallel/pipeline/micro_batch.h"
#include "lockstep/parallel/pipeline/stage_plan.h"

namespace lockstep {
namespace {

// What all ranks must agree on, as tensors whose shapes say it: the check names what differs.
void check_agreement(
    const std::vector<int>& balance, const PipelineOptions& options, const ProcessGroup& group) {
  NamedTensors agreed;
  for (std::size_t stage = 0; stage < balance.size(); ++stage)
    agreed.emplace_back(concat("stage ", stage), torch::empty({balance[stage]}));
  agreed.emplace_back(concat("schedule ", name_of(options.schedule()), " chunks"),
      torch::empty({options.chunks()}));
  check_same_on_all_ranks("PipelineStage: balance and options", agreed, group);
}

Layers own_layers(const std::vector<StageSettings>& settings, const ProcessGroup& group) {
  Layers layers;
  for (const StageSettings& stage : settings) {
    if (stage.index % group.size() != group.rank()) continue;
    for (const auto& layer : stage.layers) layers.insert(layer.key(), layer.value());
  }
  return layers;
}

std::vector<StageSettings> checked_plan(const Layers& layers, const std::vector<int>& balance,
    const PipelineOptions& options, const ProcessGroup& group) {
  check_places(static_cast<std::size_t>(group.size()), balance.size(), options);
  return plan_stages(layers, balance, options);
}

}  // namespace

PipelineGrid make_pipeline_grid(const ProcessGroup& world, int ranks) {
  check(ranks >= 1 && world.size() % ranks == 0, "make_pipeline_grid: ", world.size(),
      " ranks cannot be divided into pipelines of ", ranks, "; start a multiple of it");
  const int replica = world.rank() / ranks, stage = world.rank() % ranks;
  return {world.split(replica, stage), world.split(stage, replica)};
}

PipelineStage::PipelineStage(const Layers& layers, const std::vector<int>& balance,
    ProcessGroup group, PipelineOptions options, ProcessGroup replicas, torch::Device device)
    : group_((check_agreement(balance, options, group), std::move(group))),
      options_(options),
      device_(device),
      stages_(static_cast<int>(balance.size())),
      last_rank_((stages_ - 1) % group_.size()),
      own_layers_(own_layers(checked_plan(layers, balance, options, group_), group_)),
      links_(group_, device),
      runner_(stages_of_rank(
                  plan_stages(layers, balance, options), group_.rank(), group_.size(), device),
          stages_, group_.size(), links_),
      replicas_(own_layers_, std::move(replicas)) {}

const Schedule& PipelineStage::schedule_for(std::size_t micro_batches) {
  const auto found = schedules_.find(micro_batches);
  if (found != schedules_.end()) return found->second;
  const auto made =
      make_schedule(options_.schedule(), group_.size(), stages_, static_cast<int>(micro_batches));
  return schedules_.emplace(micro_batches, made).first->second;
}

// The others wait for what this rank will never send, so its failure must reach them.
void PipelineStage::run(const std::vector<Action>& actions, const std::function<void()>& then) {
  const Stopwatch watch;
  const double waited = links_.waited_seconds();
  try {
    runner_.run(actions);
    if (then) then();
  } catch (const CommError&) {
    throw;
  } catch (const std::exception& error) {
    group_.abort(concat("pipeline: rank ", group_.rank(), " failed: ", error.what()));
    throw;
  }
  timing_ = {watch.seconds(), links_.waited_seconds() - waited};
}

torch::Tensor PipelineStage::step(
    const torch::Tensor& input, const torch::Tensor& target, const LossFunction& loss) {
  check_step(input, target);
  const auto sizes = micro_batch_sizes(input.size(0), options_.chunks());
  LossSum losses(loss, target, sizes, options_.reduction());
  replicas_.before_step();
  const StageLoss stage_loss = is_last() ? StageLoss(std::ref(losses)) : StageLoss();
  runner_.begin_step({static_cast<int>(sizes.size()), draw_stream_seed(), stage_loss});
  if (is_first()) put_inputs(runner_, input, sizes);
  run(schedule_for(sizes.size()).actions[static_cast<std::size_t>(group_.rank())], [&] {
    if (is_first()) hand_on_input_gradient(runner_, input, sizes);
  });
  runner_.end_step();
  replicas_.after_step();
  const auto number = torch::dtype(torch::kDouble).device(device_);
  const torch::Tensor sum =
      is_last() ? losses.sum().to(torch::kDouble).reshape({1}) : torch::zeros({1}, number);
  const SpanScope span(Activity::kIdle, "wait for the loss");
  group_.broadcast(sum, last_rank_).wait();
  return sum[0];
}

torch::Tensor PipelineStage::operator()(const torch::Tensor& input) {
  const torch::NoGradGuard no_grad;
  const auto sizes = micro_batch_sizes(input.size(0), options_.chunks());
  runner_.begin_step({static_cast<int>(sizes.size()), draw_stream_seed()});
  if (is_first()) put_inputs(runner_, input, sizes);
  const auto actions = only_forwards(schedule_for(sizes.size()));
  run(actions[static_cast<std::size_t>(group_.rank())]);
  torch::Tensor output;
  if (is_last()) output = take_outputs(runner_, stages_, sizes.size());
  runner_.end_step();
  return broadcast_described(output, last_rank_, group_, device_);
}

void PipelineStage::train(bool on) {
  for (auto& layer : own_layers_) layer.value().ptr()->train(on);
}

std::int64_t PipelineStage::recomputed() const {
  std::int64_t count = 0;
  for (const Stage& stage : runner_.stages()) count += stage.recomputed();
  return count;
}

}  // namespace lockstep
