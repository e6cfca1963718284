#pragma once

#include <chrono>
#include <string>
#include <vector>

#include "lockstep/launch/hosts/hosts_options.h"
#include "lockstep/launch/hosts/network.h"
#include "lockstep/launch/ranks/worker.h"

namespace lockstep::launch {

/// Returns the variables that place a command: torchrun's PET_NNODES, PET_NODE_RANK,
/// PET_MASTER_ADDR and PET_MASTER_PORT, which its launcher and ours take for flags, and the count
/// of restarts.
std::vector<std::string> host_variables(
    const HostsOptions& options, const AttemptPlan& plan, int host);

/// Starts the command on each host; none is left if one cannot be started. Without a network the
/// hosts are real ones. Throws std::system_error, InvalidArgument.
std::vector<Worker> start_hosts(const HostsOptions& options, const AttemptPlan& plan,
    const HostNetwork* network, const Guardian& guardian);

/// Quotes words so that a shell gives them back unchanged.
std::string shell_words(const std::vector<std::string>& words);

/// Returns what a shell on another host is to run: the command in that folder, with the variables
/// that it reads first. It is ended there, by SIGTERM and after `grace` by SIGKILL, when the
/// standard input of that shell ends, as it does when ssh is killed here.
std::string remote_line(
    const std::string& folder, const std::vector<std::string>& command, std::chrono::seconds grace);

/// Returns what that shell is to read first: a line for each variable (NAME=VALUE), and an empty
/// one. On a command line all users of either host could read them, a secret too. Throws
/// InvalidArgument that names a variable of several lines.
std::string variable_lines(const std::vector<std::string>& variables);

/// Returns those of our variables that a command on another host is to have, too.
std::vector<std::string> travelling_variables(const std::vector<std::string>& ours);

}  // namespace lockstep::launch
