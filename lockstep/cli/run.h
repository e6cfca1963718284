#pragma once

#include <optional>
#include <string>
#include <vector>

#include "lockstep/launch/launch_options.h"

namespace lockstep::cli {

/// Returns the text of `lockstep run --help`.
std::string run_help();

/// Reads what follows `run`: nothing when it asks for help.
///
/// A flag that is not given is taken from its `PET_*` variable. Throws InvalidArgument that names
/// the flag, with a suggestion where one is near.
std::optional<launch::LaunchOptions> parse_run(const std::vector<std::string>& arguments);

}  // namespace lockstep::cli
