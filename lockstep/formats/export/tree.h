#pragma once

#include <cstddef>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

namespace lockstep::exported {

/// The names of a program's inputs and outputs in the order of its signature.
struct Names {
  std::vector<std::string> inputs;   ///< also of those that are constants
  std::vector<std::string> outputs;  ///< also of those that are None
};

/// Reads how the arguments and results of the user's `forward` are nested. `module` is
/// `graph_module` in the file; a DataError begins with `where`.
Names read_names(const nlohmann::json& module, const std::string& where);

}  // namespace lockstep::exported
