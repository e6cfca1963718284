#pragma once

#include <string>
#include <vector>

#include "lockstep/flags/flag_spec.h"

namespace lockstep::cli {

/// Throws InvalidArgument for a flag that would decide about the way of spreading which
/// `--parallel auto` is to choose, or make the training depend on that choice.
void check_way_is_open(const GivenFlags& given);

/// Returns the flags of `lockstep train` without `--parallel auto`. A run that is continued keeps
/// its way of spreading, with the flags that its config.toml has; for a new one this becomes
/// `lockstep plan --train`, which measures, and trains with the fastest way. Throws InvalidArgument
/// in a rank of a launcher, whose number is decided already, and for what the way of a run that is
/// continued contradicts.
std::vector<std::string> resolve_auto_parallel(const std::vector<std::string>& arguments);

}  // namespace lockstep::cli
