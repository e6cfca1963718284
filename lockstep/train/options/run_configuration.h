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

/// Reads a config.toml, and leaves of it what run_configuration() does, but with the folder of the
/// data. Throws DataError that begins with `file`.
Configuration parse_configuration(const std::string& toml, const std::string& file);

/// Reads the options of a run from its config.toml: what it names, and for the rest the defaults;
/// without a word of kernels they were LibTorch's. Flags of another version are left out. Throws
/// DataError that begins with `file` for what is not TOML, or no value of its flag.
TrainOptions recorded_options(const std::string& toml, const std::string& file);

/// Returns what config_toml() would give to parse_configuration().
Configuration begun_configuration(const TrainOptions& options);

/// Returns what all ranks of a run must be given alike, under the flags' names with their dashes.
/// Left out is what each rank may have of its own: paths, as hosts may mount the same at different
/// places (of --pretrained and --resume it must agree whether they are given), what only rank 0
/// writes and shows, and how many threads load images.
Configuration shared_configuration(const TrainOptions& options);

/// Returns the value of a flag as TOML has it; `no value` where there is none.
std::string value_in(const Configuration& configuration, const std::string& flag);

/// Lists what differs, as `--lr: the snapshot has 0.1, now 0.2`; empty if nothing does.
std::vector<std::string> differences(const Configuration& before, const Configuration& now,
    const std::string& name = "the snapshot");

/// Lists the flags that differ from what they usually are, as they would be given: `--lr 0.1`.
std::string unusual_flags(const TrainOptions& options);

}  // namespace lockstep
