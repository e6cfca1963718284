#pragma once

#include <string>
#include <vector>

#include <CLI/App.hpp>

#include "lockstep/cli/flags/launch_arguments.h"

namespace lockstep::cli {

/// Lets the help of a verb be laid out as all of ours: flags at the left, what they do from column
/// 34 on.
void use_our_layout(CLI::App& app, const std::string& usage);

/// Lists the flags of a parser.
FlagNames flag_names(const CLI::App& app);

/// Reads flags; false when they ask for help. Throws InvalidArgument that begins with the verb and,
/// for a flag that is not known, proposes one that is.
bool parse_flags(CLI::App& app, const std::string& verb, std::vector<std::string> flags);

}  // namespace lockstep::cli
