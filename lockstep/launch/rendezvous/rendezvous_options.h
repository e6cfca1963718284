#pragma once

#include <chrono>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace lockstep::launch {

/// The way in which the nodes of a world find each other, and how many there may be.
struct RendezvousOptions {
  std::string host;  ///< of the node that serves
  int port = 0;
  int least_nodes = 1, most_nodes = 1;
  std::string secret_file;          ///< empty: LOCKSTEP_SECRET, or none
  bool insecure = false;            ///< no secret, whoever reaches the port
  std::string local_address;        ///< of this node; empty: that of the way to the server
  std::optional<bool> serves = {};  ///< nothing: who can listen at the address does
  std::chrono::milliseconds join_timeout{600'000};  ///< for the least number of nodes to come
  std::chrono::milliseconds last_call{30'000};      ///< then, at the start, for more
  std::chrono::milliseconds beat{200};              ///< how often nodes tell that they live
  std::chrono::milliseconds dead_after{5'000};      ///< of silence
  /// Names and values of what must be equal on all nodes, beside the program and the restarts.
  std::vector<std::pair<std::string, std::string>> same = {};
  /// Returns the id of the run in this node's output folder; empty if there is none. A node that
  /// has another one than those that train is refused.
  std::function<std::string()> run_here = [] { return std::string(); };
};

}  // namespace lockstep::launch
