#pragma once

#include <string>

#include "lockstep/flags/flag_table.h"
#include "lockstep/launch/launch_options.h"

namespace lockstep::cli {

/// The options of `lockstep run`, and the flags that decide some of them together.
struct RunRequest {
  launch::LaunchOptions options;
  launch::RendezvousOptions meeting;
  std::string nodes = "1";
  std::string master_address;
  std::string endpoint;
  std::string rendezvous_backend;
  bool standalone = false;
  bool no_python = false;
  double monitor_interval = 0.1;
};

/// The flags about several hosts.
FlagGroup<RunRequest> node_flags();

/// Fills in how many nodes there are and where they meet: by numbers that each is given, by the
/// flags or by a cluster's variables, or by a rendezvous. Throws InvalidArgument that names the
/// flag.
void place_nodes(RunRequest& request, const GivenFlags& given);

/// Adds what must be equal on all nodes that the launcher does not see: what `lockstep train` of
/// this program is.
void add_own_facts(launch::RendezvousOptions& meeting);

}  // namespace lockstep::cli
