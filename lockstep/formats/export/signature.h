#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "lockstep/formats/export/exported_program.h"

namespace lockstep::exported {

/// Reads what the inputs and outputs of a program's graph are, and compares it with graph and
/// tensors, which are there already: each parameter, buffer and constant has its tensor, of the
/// type and shape that the graph expects, and each mutation changes something that is there.
void read_signature(
    const nlohmann::json& signature, const std::string& where, ExportedProgram& program);

}  // namespace lockstep::exported
