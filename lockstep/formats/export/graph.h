#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "lockstep/formats/export/exported_program.h"

namespace lockstep::exported {

/// Reads a graph, and the graphs in it. Each name is made once, before it is used, and the file
/// says of each what it is; otherwise throws DataError, which begins with `where`.
ExportedGraph read_graph(const nlohmann::json& graph, const std::string& where);

}  // namespace lockstep::exported
