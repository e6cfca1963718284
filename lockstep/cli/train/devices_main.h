#pragma once

#include <string>

namespace lockstep::cli {

/// Tries all accelerators of a type, or of the type that is found for "auto", and prints what
/// works: `lockstep env --check-devices`, which links no LibTorch, starts `lockstep-train` for it.
/// Returns the exit code.
int check_all_devices(const std::string& type);

}  // namespace lockstep::cli
