#pragma once

#include <chrono>
#include <optional>
#include <string>

#include "lockstep/comm/process_group.h"

namespace lockstep {

/// The options of init_process_group(); every field may be left out.
struct InitOptions {
  /// `auto`, `shm`, `gloo` or `hierarchical`. `auto` takes shm when all ranks are on one host, gloo
  /// when each has a host of its own, else hierarchical: shm within each host, Gloo between them.
  std::string backend = "auto";
  /// How long a collective, and the forming of the world, may wait for a rank.
  std::chrono::milliseconds timeout = std::chrono::minutes(5);
  /// Where the ranks meet: `env://` is MASTER_ADDR and MASTER_PORT; `tcp://HOST:PORT`, where
  /// rank 0 listens; `file:///PATH`, a file that all ranks can lock and that does not exist yet.
  /// The last rank removes it; each world needs a separate one.
  std::string init_method = "env://";
  /// Replace RANK and WORLD_SIZE.
  std::optional<int> rank = {};
  std::optional<int> world_size = {};
};

/// Forms the world from the environment that a launcher sets (RANK, WORLD_SIZE, MASTER_ADDR,
/// MASTER_PORT) or from the options. With `env://` and no rank at all it is a group of one.
///
///     auto world = lockstep::init_process_group();
///     auto other = lockstep::init_process_group(
///         {.init_method = "file:///tmp/meeting", .rank = 0, .world_size = 2});
///
/// Throws InvalidArgument that names the variable or option that is missing or wrong,
/// std::system_error for a port or file that cannot be opened, CommError when the others do not
/// come.
ProcessGroup init_process_group(const InitOptions& options = {});

}  // namespace lockstep
