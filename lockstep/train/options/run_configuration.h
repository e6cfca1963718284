#pragma once

#include <string>
#include <utility>
#include <vector>

#include "lockstep/train/options/options.h"

namespace lockstep {

/// Are flags with their values, in order: what two lives of one run must agree on.
using Configuration = std::vector<std::pair<std::string, std::string>>;

/// Gives what decides the course of a training: model, data, seed, batch, precision, optimizer,
/// schedule, averages, evaluation. Not how it is spread, how long it goes on, or what is told of
/// it.
Configuration run_configuration(const TrainOptions& options);

/// Lists what differs, as `--lr: the snapshot has 0.1, now 0.2`; empty if nothing does.
std::vector<std::string> differences(const Configuration& snapshot, const Configuration& now);

}  // namespace lockstep
