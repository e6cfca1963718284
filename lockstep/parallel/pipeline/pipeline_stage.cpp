#include "lockstep/parallel/pipeline/pipeline_stage.h"

#include <functional>
#include <utility>

#include "lockstep/core/error.h"
#include "lockstep/core/spans.h"
#include "lockstep/parallel/ddp/replicated_state.h"
#include "lockstep/parallel/operators/operator_rules.h"

namespace lockstep {
namespace {

// Checks what all ranks must agree on, as tensors whose shapes say it: the message names what
// differs.
const std::vector<int>& agreed_balance(
    const std::vector<int>& balance, const PipelineOptions& options, const ProcessGroup& group) {
  NamedTensors agreed;
  for (std::size_t stage = 0; stage < balance.size(); ++stage)
    agreed.emplace_back(concat("stage ", stage), torch::empty({balance[stage]}));
  agreed.emplace_back(concat("schedule ", name_of(options.schedule()), " chunks"),
      torch::empty({options.chunks()}));
  check_same_on_all_ranks("PipelineStage: balance and options", agreed, group);
  return balance;
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
    : PipelineCore(
          layers, agreed_balance(balance, options, group), options, group.size(), group.rank()),
      group_(std::move(group)),
      device_(device),
      last_rank_((stages_ - 1) % group_.size()),
      links_(group_, device) {
  add_runner(group_.rank(), device, links_);
  connect(std::move(replicas));
}

// The others wait for what this rank will never send, so its failure must reach them.
void PipelineStage::run(const std::vector<Action>& actions, const std::function<void()>& then) {
  try {
    runner().run(actions, then);
  } catch (const CommError&) {
    throw;
  } catch (const std::exception& error) {
    group_.abort(concat("pipeline: rank ", group_.rank(), " failed: ", error.what()));
    throw;
  }
}

torch::Tensor PipelineStage::step(
    const ChainInput& input, const torch::Tensor& target, const LossFunction& loss) {
  check_step(input, target);
  const auto sizes = micro_batch_sizes(input.batch_size(), options_.chunks());
  LossSum losses(loss, target, sizes, options_.reduction());
  before_step();
  const StageLoss stage_loss = is_last() ? StageLoss(std::ref(losses)) : StageLoss();
  runner().begin_step({static_cast<int>(sizes.size()), draw_stream_seed(), stage_loss});
  if (is_first()) runner().put_inputs(input, sizes);
  run(schedule_for(sizes.size()).actions[static_cast<std::size_t>(group_.rank())], [&] {
    if (is_first()) runner().hand_on_input_gradients(input, sizes);
  });
  runner().end_step();
  after_step();
  const auto number = torch::dtype(torch::kDouble).device(device_);
  const torch::Tensor sum =
      is_last() ? losses.sum().to(torch::kDouble).reshape({1}) : torch::zeros({1}, number);
  const SpanScope span(Activity::kIdle, "wait for the loss");
  group_.broadcast(sum, last_rank_).wait();
  return sum[0];
}

torch::Tensor PipelineStage::operator()(const ChainInput& input) {
  const torch::NoGradGuard no_grad;
  const auto sizes = micro_batch_sizes(input.batch_size(), options_.chunks());
  runner().begin_step({static_cast<int>(sizes.size()), draw_stream_seed()});
  if (is_first()) runner().put_inputs(input, sizes);
  const auto actions = actions_of(schedule_for(sizes.size()), /*forward=*/true);
  run(actions[static_cast<std::size_t>(group_.rank())]);
  torch::Tensor output;
  if (is_last()) output = runner().take_outputs(sizes.size());
  runner().end_step();
  return broadcast_described(output, last_rank_, group_, device_);
}

}  // namespace lockstep
