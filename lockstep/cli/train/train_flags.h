#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/flags/flag_spec.h"
#include "lockstep/train/options/options.h"

namespace lockstep::cli {

/// A request to `lockstep train`.
struct TrainCommand {
  TrainOptions options;
  bool dry_run = false;
  bool json = false;
  bool names_precision = false;  ///< --precision was given
  bool names_kernels = false;    ///< --kernels was given
};

/// The launcher's statements about the ranks, and the clock for the default folder.
struct TrainSurroundings {
  int world_size = 1;
  int local_world_size = 1;
  std::int64_t unix_time = 0;
  int restart_count = 0;  ///< starts of this group of ranks before this one
};

/// Returns the text of `lockstep train --help`.
std::string train_help();

/// Reads the flags after `train`: nothing when they ask for help. Throws InvalidArgument that names
/// the flag, with a suggestion where one is near.
std::optional<TrainCommand> parse_train_flags(
    const std::vector<std::string>& arguments, const TrainSurroundings& surroundings);

/// Does the same with a command line that is cut into flags already.
TrainCommand read_train_flags(const GivenFlags& given, const TrainSurroundings& surroundings);

/// The arithmetic of the run that is resumed: what `auto` means for it from then on.
struct ResumedArithmetic {
  std::optional<Precision> precision = {};
  std::optional<nn::Kernels> kernels = {};
};

/// Returns that of the snapshot that these options resume from; nothing of it if they resume none,
/// or none can be read. Whether it is whole is not checked here.
ResumedArithmetic resumed_arithmetic(const TrainOptions& options);

}  // namespace lockstep::cli
