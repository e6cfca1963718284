#pragma once

#include <functional>
#include <map>
#include <optional>
#include <string>

namespace lockstep::cluster {

/// The variables of a process, and the little else that its place in a run follows from. Places are
/// pure functions of it.
struct Surroundings {
  std::map<std::string, std::string> variables;
  int process = 0;  ///< its id, as its cluster knows it
  /// Returns what is in a file; nothing if it cannot be read.
  std::function<std::optional<std::string>(const std::string& path)> read_file = {};

  bool has(const std::string& name) const { return variables.contains(name); }

  /// Returns a variable's value. One that is set but empty is an InvalidArgument that names it, as
  /// in core/environment.h.
  std::optional<std::string> text(const std::string& name) const;

  /// Reads one as a whole number up to kMostRanks; throws InvalidArgument that names it for
  /// anything else.
  std::optional<int> count(const std::string& name, int least = 0) const;
};

/// Returns those of this process.
Surroundings surroundings_of_this_process();

}  // namespace lockstep::cluster
