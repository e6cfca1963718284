#pragma once

#include <set>
#include <string>
#include <vector>

namespace lockstep::cli {

/// Names the flags of a verb: those that take a value and those that do not, as `--log-dir` and
/// `-t`.
struct FlagNames {
  std::set<std::string> with_value;
  std::set<std::string> alone;

  std::vector<std::string> all() const;
};

/// Is a command line cut in two.
struct SplitArguments {
  std::vector<std::string> flags;  ///< for us, names in kebab-case
  std::vector<std::string> rest;   ///< for the program, unchanged
};

/// Cuts `FLAGS [--] PROGRAM ARGUMENTS` before the program: the first word that is neither a flag
/// nor a flag's value.
///
///     {"--nproc_per_node", "2", "./hello", "--nnodes", "3"}   // --nproc-per-node 2 | ./hello
///     --nnodes 3
SplitArguments split_at_program(const std::vector<std::string>& arguments, const FlagNames& names);

/// Takes the named flags out of a command line, wherever they stand; all others are the rest.
SplitArguments take_flags(const std::vector<std::string>& arguments, const FlagNames& names);

/// Writes a flag's name with dashes and leaves its value: `--log_dir=a_b` becomes `--log-dir=a_b`;
/// `-np` is
/// `--nproc-per-node`.
std::string canonical_flag(const std::string& argument);

}  // namespace lockstep::cli
