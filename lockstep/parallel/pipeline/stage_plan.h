#pragma once

#include <vector>

#include "lockstep/parallel/pipeline/layers.h"
#include "lockstep/parallel/pipeline/pipeline_options.h"
#include "lockstep/parallel/pipeline/stage.h"

namespace lockstep {

/// Throws InvalidArgument that says what to do unless these places can compute these stages by the
/// options' schedule.
void check_places(std::size_t places, std::size_t stages, const PipelineOptions& options);

/// Throws InvalidArgument unless a step can be made with them: equal batch sizes, gradients on.
void check_step(const torch::Tensor& input, const torch::Tensor& target);

/// Returns the settings of all stages of a chain, without their devices.
std::vector<StageSettings> plan_stages(
    const Layers& layers, const std::vector<int>& balance, const PipelineOptions& options);

/// Makes those stages that a rank computes, on its device.
std::vector<Stage> stages_of_rank(
    const std::vector<StageSettings>& settings, int rank, int ranks, torch::Device device);

/// Return for each rank the forwards of a schedule, or everything else, in its order.
std::vector<std::vector<Action>> only_forwards(const Schedule& schedule);
std::vector<std::vector<Action>> only_backwards(const Schedule& schedule);

}  // namespace lockstep
