#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "lockstep/launch/child_process.h"
#include "lockstep/launch/hang/stall.h"
#include "lockstep/launch/launch_options.h"
#include "lockstep/launch/restart.h"
#include "lockstep/net/endpoint.h"
#include "lockstep/net/wire.h"

namespace lockstep::launch {

/// The facts that a node tells about itself when it joins.
struct NodeFacts {
  std::string host;     ///< its name, for people
  std::string address;  ///< at which the others reach it
  int port = 0;         ///< that it holds for a rank 0 that serves a store of its own
  int workers = 1;
  bool serves = false;   ///< the rendezvous runs in its launcher
  int standby_port = 0;  ///< where it would serve if the server is lost; 0: it would not
  std::string run = {};  ///< the id of the run in its output folder; empty: none, or not known
  /// Names and values of what must be equal on all nodes: the program, the configuration.
  std::vector<std::pair<std::string, std::string>> same = {};

  /// Where it would serve, as HOST:PORT.
  std::string standby() const {
    return net::Endpoint{.host = address, .port = standby_port}.text();
  }
};

/// Returns what differs and must not: `the program is A, on host B it is C`; empty if nothing does.
std::string difference(const NodeFacts& node, const NodeFacts& other);

/// The end of a node's ranks of one generation.
struct NodeEnd {
  std::int64_t generation = 0;
  int code = 0;                            ///< of the launcher if this was its only node
  std::optional<ExitStatus> failure = {};  ///< of the rank that failed first, by itself
  std::optional<int> signal = {};          ///< the first that the launcher got: it leaves
  std::optional<std::int64_t> step = {};   ///< the furthest that was reported
  int port = 0;                            ///< held for the next generation
  std::string run = {};                    ///< as in NodeFacts, now
};

/// The calls in which all ranks of a node wait for others, without progress.
struct NodeWait {
  GroupCounts begun;  ///< of the rank that is furthest behind
  std::string text;   ///< `rank 2 waits in all_reduce 42 (4 bytes)`
  bool in_step;       ///< in collectives that all of them have begun

  bool operator==(const NodeWait&) const = default;
};

/// A message of a node's launcher to the rendezvous.
struct AgentMessage {
  enum class Kind : std::uint8_t {
    kBeat,    ///< it lives
    kJoin,    ///< it joins
    kFailed,  ///< one of its ranks failed; the others are being ended
    kEnded,   ///< all of its ranks have ended
    kLeave,   ///< it leaves, between two generations
    kWaits,   ///< its ranks wait for those of other nodes, or no longer do
    kMoved,   ///< this world goes on elsewhere; sent to the server at the founding address
  };

  Kind kind = Kind::kBeat;
  NodeFacts facts = {};  ///< of kJoin
  /// Of kFailed, kWaits, kMoved; of kJoin the last one of which it had ranks, if it comes from an
  /// earlier server: kEnded follows when they have ended.
  std::int64_t generation = 0;
  std::string text = {};              ///< of kFailed: which rank, and how; of kMoved HOST:PORT
  std::int64_t founder = 0;           ///< of kMoved: the world's
  NodeEnd end = {};                   ///< of kEnded; of kLeave the code
  std::optional<NodeWait> wait = {};  ///< of kWaits
};

/// A node's place in a generation of the world. The store and the node's own address, of which no
/// message tells, each node fills in for its ranks.
struct NodePlan : RankSpan {
  int node_rank = 0, nodes = 1;
  std::string master_address;  ///< of node 0
  int master_port = 0;
  int restart = 0;       ///< generations before this one
  int max_restarts = 0;  ///< with those that no failure has caused
  /// Where the nodes would serve, as HOST:PORT, if the server is lost: the first that lives does.
  std::vector<std::string> successors = {};
  std::int64_t founder = 0;     ///< a random number of the founding of the world
  std::string origin = {};      ///< where that was, as HOST:PORT
  RestartHistory history = {};  ///< which the successor needs
};

/// A message of the rendezvous to a node's launcher.
struct Order {
  enum class Kind : std::uint8_t {
    kBeat,    ///< it lives, too
    kWait,    ///< for other nodes; the text says why, the plan has the successors
    kStart,   ///< the ranks, at this place
    kEnd,     ///< the ranks of a generation; the text says why
    kFinish,  ///< the run is over, with this code; the text may say why
    kRefuse,  ///< the node may not take part; the text says why
    kHang,    ///< all ranks wait, and those here are behind; the text says for what others wait
    kMove,    ///< to the server at HOST:PORT, in the text; empty: to the successor
  };

  Kind kind = Kind::kBeat;
  NodePlan plan = {};           ///< of kStart, kWait
  std::int64_t generation = 0;  ///< of kEnd, kHang
  bool gently = false;          ///< of kEnd: time to save is given
  int code = 0;                 ///< of kFinish
  std::string text = {};
};

std::string bytes_of(const AgentMessage& message);
std::string bytes_of(const Order& order);

/// Throw DataError for malformed bytes.
AgentMessage agent_message_of(std::string_view bytes);
Order order_of(std::string_view bytes);

}  // namespace lockstep::launch
