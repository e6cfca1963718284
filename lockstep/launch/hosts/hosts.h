#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/launch/hosts/made_hosts.h"
#include "lockstep/launch/ranks/worker.h"

namespace lockstep::launch {

/// The host that is killed, and the time.
struct Drill {
  int host = 0;
  double seconds = 0;  ///< after the start of the first attempt
};

/// The command for several hosts, and these hosts.
struct HostsOptions {
  int count = 0;  ///< hosts made within this machine; 0: `names` are real ones
  std::vector<std::string> names = {};  ///< HOST or USER@HOST; the first is host 0
  std::string by = "ssh";               ///< what runs `BY NAME COMMAND`; words apart by spaces
  std::int64_t rate = 0;                ///< of each made host's link, bits per second; 0: no limit
  int cores_a_host = 0;  ///< 0: made hosts share ours evenly, if there is one for each
  std::string program;   ///< a path, or a name for PATH; `lockstep` is this program itself
  std::vector<std::string> arguments = {};
  int master_port = 29500;  ///< where host 0 is to listen; one more with each restart
  int max_restarts = 0;     ///< of all hosts, when one fails
  std::optional<Drill> drill = {};
  std::chrono::milliseconds grace_period{30000};  ///< between a passed-on signal and SIGKILL
  bool quiet = false;

  int size() const { return count > 0 ? count : static_cast<int>(names.size()); }
};

/// Reads `HOST@SECONDS`, as `1@2.5`. Throws InvalidArgument.
Drill parse_drill(const std::string& text);

/// Reads a rate as `tc` writes it, `500mbit`, `2.5gbit`, and returns bits per second. Throws
/// InvalidArgument for another form and outside 64kbit to 1000gbit.
std::int64_t parse_rate(const std::string& text);

/// Throws InvalidArgument that names the flag for options that cannot work.
void check_options(const HostsOptions& options);

/// Runs a command on several hosts at once, made within this machine or real ones, waits for all
/// and returns the run's exit code: 0, or that of the host that failed first.
///
/// The first failure ends all; then they are started again, if the options allow it. A signal from
/// outside is passed on. Nothing is left at the end, even when the calling process is killed.
///
/// Call it from the main thread of `lockstep` itself, which is also the first process of each made
/// host. Throws InvalidArgument, and std::system_error for what is wrong before the start.
int run_hosts(const HostsOptions& options);

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

/// Selects the variables of this process that are passed on to a command on another host.
std::vector<std::string> travelling_variables(const std::vector<std::string>& ours);

}  // namespace lockstep::launch
