#pragma once

#include <vector>

#include "lockstep/comm/process_group.h"
#include "lockstep/nn/models/model.h"
#include "lockstep/train/options/options.h"
#include "lockstep/train/strategy/layout.h"

namespace lockstep {

/// Says how many layers of a model each stage takes, by the options' rule; `image` is [channels,
/// height, width]. Rank 0 measures and tells the others. A collective.
std::vector<int> stage_balance(
    const TrainOptions& options, const Layout& layout, const nn::Model& model,
    const std::vector<std::int64_t>& image, const ProcessGroup& world);

}  // namespace lockstep
