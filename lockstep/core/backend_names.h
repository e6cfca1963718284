#pragma once

#include <algorithm>
#include <string>
#include <vector>

namespace lockstep {

/// Returns the backends that a program may ask for between ranks that are processes; `auto` chooses
/// among the others.
inline std::vector<std::string> backend_names() { return {"auto", "shm", "gloo", "hierarchical"}; }

/// Returns whether a program may ask for a backend of this name.
inline bool is_backend_name(const std::string& name) {
  const std::vector<std::string> names = backend_names();
  return std::find(names.begin(), names.end(), name) != names.end();
}

}  // namespace lockstep
