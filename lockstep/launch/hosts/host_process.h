#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/launch/child_process.h"
#include "lockstep/launch/guardian.h"
#include "lockstep/launch/hosts/hosts_options.h"
#include "lockstep/launch/hosts/network.h"
#include "lockstep/launch/worker_output.h"

namespace lockstep::launch {

/// Says what is new in one life of the hosts' commands.
struct HostsPlan {
  int restart = 0;            ///< how many lives there were before
  std::int64_t death_ns = 0;  ///< when the last of them failed, on the monotonic clock; 0: none did
};

/// Is what runs on one host: its process here, its output and how it ended.
struct HostProcess {
  int host;
  WorkerOutput output;
  std::optional<ChildProcess> process = {};
  std::optional<ExitStatus> status = {};  ///< set when its end was seen
};

/// Gives the variables that place a command: torchrun's PET_NNODES, PET_NODE_RANK, PET_MASTER_ADDR
/// and PET_MASTER_PORT, which its launcher and ours take for flags, and the count of restarts.
std::vector<std::string> host_variables(
    const HostsOptions& options, const HostsPlan& plan, int host);

/// Starts the command on each host; none is left if one cannot be started. Without a network the
/// hosts are real ones. Throws std::system_error, InvalidArgument.
std::vector<HostProcess> start_hosts(
    const HostsOptions& options, const HostsPlan& plan, const HostNetwork* network,
    const Guardian& guardian);

}  // namespace lockstep::launch
