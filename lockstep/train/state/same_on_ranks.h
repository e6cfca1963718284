#pragma once

#include <string>

#include "lockstep/comm/process_group.h"
#include "lockstep/train/options/run_configuration.h"

namespace lockstep {

/// Throws InvalidArgument on all ranks unless all have the same values. Its message begins with
/// `headline` and names what differs, with each value and its ranks. A collective.
void check_same_on_ranks(
    const Configuration& own, const std::string& headline, const ProcessGroup& world);

/// Throws it if the ranks were started with different flags, but for those that may differ (see
/// shared_configuration()). A collective, and to be the first: others depend on flags.
void check_same_flags(const TrainOptions& options, const ProcessGroup& world);

}  // namespace lockstep
