#pragma once

#include <vector>

#include "lockstep/comm/process_group.h"
#include "lockstep/nn/autocast.h"
#include "lockstep/nn/models/model.h"
#include "lockstep/train/options/options.h"
#include "lockstep/train/strategy/layout.h"
#include "lockstep/train/strategy/task.h"

namespace lockstep {

/// Begins the scope in which a model computes with that precision on that type of device.
inline nn::Autocast autocast_of(Precision precision, torch::DeviceType device) {
  const auto type = precision == Precision::k16Mixed ? at::kHalf : at::kBFloat16;
  return nn::Autocast(device, type, precision != Precision::k32);
}

/// Throws InvalidArgument unless the model has a layer for each stage.
void check_stages(const TrainOptions& options, const Layout& layout, const nn::Model& model);

/// Returns how many layers of a model each stage takes, by the options' rule; a sample of the task
/// is one tensor. Rank 0 measures for all, on its device, and leaves the model there. A
/// collective.
std::vector<int> stage_balance(const TrainOptions& options, const Layout& layout,
    const nn::Model& model, const Task& task, torch::Device device, const ProcessGroup& world);

}  // namespace lockstep
