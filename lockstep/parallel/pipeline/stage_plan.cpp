#include "lockstep/parallel/pipeline/stage_plan.h"

#include <map>
#include <set>

#include "lockstep/core/error.h"
#include "lockstep/parallel/pipeline/skip.h"
#include "lockstep/parallel/schedule/partition.h"

namespace lockstep {

namespace {

std::vector<std::vector<Action>> those_that(const Schedule& schedule, bool forward) {
  std::vector<std::vector<Action>> chosen;
  for (const auto& actions : schedule.actions) {
    auto& rank = chosen.emplace_back();
    for (const Action& action : actions) {
      if ((action.kind == ActionKind::kForward) == forward) rank.push_back(action);
    }
  }
  return chosen;
}

void check_layers_differ(const Layers& layers) {
  std::map<const torch::nn::Module*, std::string> seen;
  for (const auto& layer : layers) {
    const auto [first, fresh] = seen.emplace(layer.value().ptr().get(), layer.key());
    check(fresh, "pipeline: layer ", layer.key(), " is the same module as layer ", first->second,
        "; make two modules, or one layer that calls it twice");
  }
}

void check_parameters_of_one_stage(const std::vector<Layers>& stages) {
  std::map<const void*, std::pair<std::size_t, std::string>> owner;
  for (std::size_t stage = 0; stage < stages.size(); ++stage) {
    for (const auto& layer : stages[stage]) {
      for (const auto& parameter : layer.value().ptr()->named_parameters()) {
        const std::string name = layer.key() + "." + parameter.key();
        const auto [first, fresh] =
            owner.try_emplace(parameter.value().unsafeGetTensorImpl(), stage, name);
        check(fresh || first->second.first == stage, "pipeline: ", name, " in stage ", stage,
            " is the same parameter as ", first->second.second, " in stage ", first->second.first,
            "; put both layers into one stage");
      }
    }
  }
}

}  // namespace

// Made here, so that a refusal does not wait for the first step.
void check_places(std::size_t places, std::size_t stages, const PipelineOptions& options) {
  check(places >= 1, "pipeline: at least one place is needed");
  check(places <= stages, "pipeline: ", places, " places cannot share ", stages,
      stages == 1 ? " stage" : " stages", "; give each place a stage, or fewer places");
  check(options.chunks() >= 1, "pipeline: chunks must be at least 1, not ", options.chunks());
  make_schedule(
      options.schedule(), static_cast<int>(places), static_cast<int>(stages), options.chunks());
}

void check_step(const torch::Tensor& input, const torch::Tensor& target) {
  check(torch::GradMode::is_enabled(), "pipeline: a step needs gradients, and they are off");
  check(input.dim() > 0 && target.dim() > 0 && input.size(0) == target.size(0), "pipeline: input ",
      input.sizes(), " and target ", target.sizes(), " must have the same batch size");
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

std::vector<Stage> stages_of_rank(
    const std::vector<StageSettings>& settings, int rank, int ranks, torch::Device device) {
  std::vector<Stage> own;
  for (StageSettings stage : settings) {
    if (stage.index % ranks != rank) continue;
    stage.device = device;
    own.emplace_back(std::move(stage));
  }
  return own;
}

std::vector<std::vector<Action>> only_forwards(const Schedule& schedule) {
  return those_that(schedule, true);
}

std::vector<std::vector<Action>> only_backwards(const Schedule& schedule) {
  return those_that(schedule, false);
}

Layers layers_of(const torch::nn::Sequential& net) {
  Layers layers;
  const auto names = net->named_children().keys();
  std::size_t index = 0;
  for (const auto& layer : *net) layers.insert(names.at(index++), layer);
  return layers;
}

std::vector<Layers> cut(const Layers& layers, const std::vector<int>& balance) {
  check_balance(balance, layers.size(), static_cast<int>(balance.size()));
  check_layers_differ(layers);
  std::vector<Layers> stages;
  std::size_t next = 0;
  for (const int size : balance) {
    Layers& stage = stages.emplace_back();
    for (int taken = 0; taken < size; ++taken, ++next)
      stage.insert(layers[next].key(), layers[next].value());
  }
  check_parameters_of_one_stage(stages);
  return stages;
}

std::vector<torch::Tensor> parameters_of(const Layers& layers) {
  std::vector<torch::Tensor> parameters;
  std::set<const void*> seen;
  for (const auto& layer : layers) {
    for (const torch::Tensor& parameter : layer.value().ptr()->parameters()) {
      if (seen.insert(parameter.unsafeGetTensorImpl()).second) parameters.push_back(parameter);
    }
  }
  return parameters;
}

}  // namespace lockstep
