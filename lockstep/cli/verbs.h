#pragma once

#include <optional>
#include <string>
#include <vector>

#include "lockstep/launch/launch_options.h"

namespace lockstep::cli {

/// Starts a program once per rank. Returns the run's exit code.
int run(const std::vector<std::string>& arguments);

/// Returns the text of `lockstep run --help`.
std::string run_help();

/// Reads what follows `run`: nothing when it asks for help.
///
/// A flag that is not given is taken from its `PET_*` variable. Throws InvalidArgument that names
/// the flag, with a suggestion where one is near.
std::optional<launch::LaunchOptions> parse_run(const std::vector<std::string>& arguments);

/// Runs a command on several hosts at once, made within this machine or real ones.
int hosts(const std::vector<std::string>& arguments);

/// Trains by `lockstep-train`, which lies beside this program: once, or once per rank with
/// `--nproc-per-node`.
int train(const std::vector<std::string>& arguments);

/// Evaluates trained weights by `lockstep-train`.
int eval(const std::vector<std::string>& arguments);

/// Lets a trained language model go on with a prompt, by `lockstep-train`.
int sample(const std::vector<std::string>& arguments);

/// Fetches, checks or synthesizes a data set.
int data(const std::vector<std::string>& arguments);

/// Converts weights between safetensors and PyTorch's files.
int convert(const std::vector<std::string>& arguments);

/// Writes a project with models of the user's own, a plugin of `train`.
int new_project(const std::vector<std::string>& arguments);

/// Shows what runs recorded, and where they were resumed; `lockstep-bench` writes a bench's tables
/// and figures again.
int report(const std::vector<std::string>& arguments);

/// Measures a study: each cell of its grid by processes of its own, then tables and figures. This
/// and the next three are in `lockstep-bench`, which lies beside `lockstep`.
int bench(const std::vector<std::string>& arguments);

/// Reports a bench's folder or files of results, as `[--json] PATH...` that report() has checked.
int report_measured(std::vector<std::string> arguments);

/// Predicts which way of spreading pays, by `lockstep-bench`.
int plan(const std::vector<std::string>& arguments);

/// Measures collectives by `lockstep-collectives`, which lies beside it: once per rank,
/// or once with threads as ranks.
int collectives(const std::vector<std::string>& arguments);

/// Prints facts about this host and this build.
int env(const std::vector<std::string>& arguments);

/// Prints the overview of all verbs, or the help of one.
int help(const std::vector<std::string>& arguments);

/// Runs the verb that the arguments name; throws InvalidArgument with a suggestion when there is
/// none.
int dispatch(const std::vector<std::string>& arguments);

}  // namespace lockstep::cli
