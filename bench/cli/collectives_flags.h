#pragma once

#include <optional>
#include <string>
#include <vector>

#include "bench/collectives/sweep.h"

namespace lockstep::cli {

/// A request to `lockstep collectives`.
struct CollectivesCommand {
  bench::Sweep sweep;
  int ranks = 2;  ///< to start, as processes or as threads
  bool pin = true;
  bool oversubscribe = false;  ///< far more ranks than cores
  std::string output;          ///< folder; empty: none
  bool json = false;
  bool starts_ranks = false;  ///< some flag says how

  /// Returns whether the ranks are threads of one process.
  bool ranks_are_threads() const { return sweep.backends.front() == "threads"; }
};

/// Returns the help of `lockstep collectives`.
std::string collectives_help();

/// Reads the flags; nothing when they ask for help. Throws InvalidArgument that names the flag,
/// with a suggestion where one is near.
std::optional<CollectivesCommand> parse_collectives(const std::vector<std::string>& arguments);

}  // namespace lockstep::cli
