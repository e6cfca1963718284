#pragma once

#include <string>
#include <vector>

namespace lockstep {

/// Returns the backends that a program may ask for between ranks that are processes; `auto` chooses
/// among the others.
inline std::vector<std::string> backend_names() { return {"auto", "shm", "gloo", "hierarchical"}; }

}  // namespace lockstep
