#include "lockstep/parallel/pipeline/stage_plan.h"

#include "lockstep/core/error.h"
#include "lockstep/parallel/pipeline/layers.h"

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

}  // namespace lockstep
