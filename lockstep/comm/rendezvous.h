#pragma once

#include <chrono>
#include <string>

#include "lockstep/comm/process_group.h"

namespace lockstep {

/// Says how the world is formed; every field may be left out.
struct InitOptions {
  /// `auto`, `shm` or `gloo`. `auto` takes shm when all ranks are on one host, else gloo.
  std::string backend = "auto";
  /// Is how long a collective, and the forming of the world, may wait for a rank.
  std::chrono::milliseconds timeout = std::chrono::minutes(5);
};

/// Forms the world from the environment that a launcher sets: RANK, WORLD_SIZE, MASTER_ADDR,
/// MASTER_PORT. Without RANK it is a group of one.
///
/// Throws InvalidArgument that names the variable that is missing or wrong, CommError when the
/// others do not come.
ProcessGroup init_process_group(const InitOptions& options = {});

}  // namespace lockstep
