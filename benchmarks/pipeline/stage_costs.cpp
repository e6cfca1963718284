#include "stage_costs.h"

#include <algorithm>

#include "machine_load.h"
#include <ATen/ops/randn_like.h>

#include "lockstep/core/error.h"
#include "lockstep/core/stopwatch.h"
#include "lockstep/parallel/pipeline/pipeline_core.h"
#include "lockstep/parallel/schedule/execution_order.h"

namespace lockstep::benchmark {
namespace {

std::vector<StageSettings> settings_of(const Work& work, const std::vector<int>& balance) {
  return plan_stages(work.layers, balance, PipelineOptions());
}

// What the stages before give for a micro-batch, without a history.
Payload input_of(
    const std::vector<StageSettings>& settings, int index, int micro_batch, torch::Tensor piece) {
  const torch::NoGradGuard no_grad;
  Payload value{ValueForm::kTensor, {std::move(piece)}, 0};
  for (int before = 0; before < index; ++before) {
    Stage stage(settings[static_cast<std::size_t>(before)]);
    stage.begin_step({});
    value = stage.forward(micro_batch, value);
  }
  for (torch::Tensor& tensor : value.values) tensor = tensor.detach().set_requires_grad(index > 0);
  return value;
}

double cost_of(const StageCosts& costs, ActionKind kind) {
  switch (kind) {
    case ActionKind::kForward:
      return costs.forward;
    case ActionKind::kBackward:
      return costs.backward;
    case ActionKind::kBackwardInput:
      return costs.backward_input;
    case ActionKind::kBackwardWeight:
      return costs.backward_weight;
    default:
      throw Error("simulated_seconds: takes a schedule without transfers");
  }
}

}  // namespace

LoneStage::LoneStage(
    const Work& work, const std::vector<int>& balance, int index, int micro_batches)
    : stage_(settings_of(work, balance)[static_cast<std::size_t>(index)]) {
  const auto settings = settings_of(work, balance);
  const auto sizes = micro_batch_sizes(work.input.size(0), micro_batches);
  const auto pieces = split_batch(work.input, sizes);
  targets_ = split_batch(work.target, sizes);
  plan_.micro_batches = micro_batches;
  if (index + 1 == static_cast<int>(balance.size())) {
    plan_.loss = [this, loss = work.loss](torch::nn::AnyValue& output, int micro_batch) {
      return loss(output.get<torch::Tensor>(), targets_[static_cast<std::size_t>(micro_batch)]);
    };
  }
  const torch::NoGradGuard no_grad;
  stage_.begin_step(plan_);
  for (int micro_batch = 0; micro_batch < micro_batches; ++micro_batch) {
    const auto at = static_cast<std::size_t>(micro_batch);
    inputs_.push_back(input_of(settings, index, micro_batch, pieces[at]));
    gradients_.push_back(stage_.forward(micro_batch, inputs_.back()));
    for (torch::Tensor& tensor : gradients_.back().values) tensor = at::randn_like(tensor);
  }
}

double LoneStage::forward(int micro_batch) {
  const Stopwatch watch;
  stage_.forward(micro_batch, inputs_[static_cast<std::size_t>(micro_batch)]);
  return watch.seconds();
}

StageCosts LoneStage::run_whole() {
  StageCosts costs;
  const double cpu = cpu_seconds();
  stage_.begin_step(plan_);
  for (int micro_batch = 0; micro_batch < plan_.micro_batches; ++micro_batch) {
    costs.forward += forward(micro_batch) / plan_.micro_batches;
    const Stopwatch watch;
    stage_.backward(micro_batch, gradients_[static_cast<std::size_t>(micro_batch)]);
    costs.backward += watch.seconds() / plan_.micro_batches;
  }
  stage_.end_step();
  costs.cpu = (cpu_seconds() - cpu) / plan_.micro_batches;
  return costs;
}

StageCosts LoneStage::run_split() {
  StageCosts costs;
  stage_.begin_step(plan_);
  for (int micro_batch = 0; micro_batch < plan_.micro_batches; ++micro_batch) {
    forward(micro_batch);
    Stopwatch watch;
    stage_.backward_input(micro_batch, gradients_[static_cast<std::size_t>(micro_batch)]);
    costs.backward_input += watch.restart() / plan_.micro_batches;
    stage_.backward_weight(micro_batch);
    costs.backward_weight += watch.seconds() / plan_.micro_batches;
  }
  stage_.end_step();
  return costs;
}

double simulated_seconds(const Schedule& schedule, const std::vector<StageCosts>& costs) {
  std::vector<double> ends(number_of_events(schedule));
  std::vector<double> free_at(static_cast<std::size_t>(schedule.ranks));
  for (const auto& [rank, action] : execution_order(schedule)) {
    double& time = free_at[static_cast<std::size_t>(rank)];
    for (const Action& need : needs_of(schedule, /*transfers=*/false, action))
      time = std::max(time, ends[event_of(schedule, need)]);
    time += cost_of(costs[static_cast<std::size_t>(action.stage)], action.kind);
    ends[event_of(schedule, action)] = time;
  }
  return *std::max_element(free_at.begin(), free_at.end());
}

}  // namespace lockstep::benchmark
