#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "lockstep/formats/export/exported_program.h"

namespace lockstep::exported {

/// Returns the line of the user's Python in a stack trace: `net.py:7, in forward: h = self.c(x)`.
///
/// It is that of the innermost frame outside of PyTorch, or else of the innermost. Of the file
/// there is only the name. Empty without a frame.
std::string source_line(std::string_view stack_trace);

/// Reads a `nn_module_stack`: entries `key,path,type` with semicolons between them.
std::vector<ExportedModule> modules_of(std::string_view stack);

}  // namespace lockstep::exported
