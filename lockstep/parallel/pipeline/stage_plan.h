#pragma once

#include <string>
#include <vector>

#include <torch/nn/modules/container/any.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/ordered_dict.h>

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

/// A model as a chain of layers, each called with the output of the one before. Names are for
/// messages; parameters keep the names that their modules give them.
using Layers = torch::OrderedDict<std::string, torch::nn::AnyModule>;

/// Returns the layers of a Sequential, named as its children.
Layers layers_of(const torch::nn::Sequential& net);

/// Cuts a chain into stages of `balance[i]` layers each.
///
/// Throws InvalidArgument that says what to do if the numbers do not add up to the layers or one is
/// below 1, if a layer occurs twice, or if two stages hold the same parameter.
///
///     cut(layers, {2, 3})
std::vector<Layers> cut(const Layers& layers, const std::vector<int>& balance);

/// Returns every parameter of the layers once, in order.
std::vector<torch::Tensor> parameters_of(const Layers& layers);

}  // namespace lockstep
