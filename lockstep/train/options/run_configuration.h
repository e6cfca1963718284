#pragma once

#include <string>
#include <utility>
#include <vector>

#include "lockstep/train/options/options.h"

namespace lockstep {

/// Writes the resolved options as TOML, each under its flag's name.
std::string config_toml(const TrainOptions& options);

/// Flags with their values, as TOML has them: what a run and the run that resumes it must agree on.
using Configuration = std::vector<std::pair<std::string, std::string>>;

/// Returns what decides the course of a training: all flags but those that may change when it is
/// resumed, as how it is spread, how long it goes on, where its data lie, or what is reported of
/// it.
Configuration run_configuration(const TrainOptions& options);

/// Lists what differs, as `--lr: the snapshot has 0.1, now 0.2`; empty if nothing does.
std::vector<std::string> differences(const Configuration& snapshot, const Configuration& now);

/// Lists the flags that differ from what they usually are, as they would be given: `--lr 0.1`.
std::string unusual_flags(const TrainOptions& options);

}  // namespace lockstep
