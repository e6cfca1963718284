#pragma once

#include <string>
#include <utility>
#include <vector>

#include "lockstep/net/message_bytes.h"

namespace lockstep::launch {

/// The facts that a node tells of itself when it joins.
struct NodeFacts {
  std::string host;     ///< its name, for people
  std::string address;  ///< by which the others reach it
  int port = 0;         ///< that it holds for a rank 0 that serves a store of its own
  int workers = 1;
  bool serves = false;   ///< the rendezvous runs in its launcher
  int standby_port = 0;  ///< at which it would serve if the one that does is lost; 0: it would not
  std::string run = {};  ///< the id of the run in its output folder; empty: none, or not known
  /// Names and values of what must be equal on all nodes: the program, the configuration.
  std::vector<std::pair<std::string, std::string>> same = {};
};

void write(net::ByteWriter& writer, const NodeFacts& facts);
NodeFacts read_node_facts(net::ByteReader& reader);

/// Returns what must be equal and is not: `the program is A, on host B it is C`; empty if nothing.
std::string difference(const NodeFacts& node, const NodeFacts& other);

}  // namespace lockstep::launch
