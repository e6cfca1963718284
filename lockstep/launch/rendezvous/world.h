#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/launch/rendezvous/messages.h"
#include "lockstep/launch/restart.h"

namespace lockstep::launch {

/// The number of a node's connection; a later one has a higher number.
using NodeId = std::uint64_t;

/// The rules of a world of several nodes.
struct WorldRules {
  int least_nodes = 1, most_nodes = 1;
  RestartRules restarts;
  std::chrono::milliseconds join_timeout{600'000};
  std::chrono::milliseconds last_call{30'000};
  /// For those of an earlier world to say that it goes on elsewhere, before an elastic one is
  /// founded with less than all nodes.
  std::chrono::milliseconds to_found{0};

  bool is_elastic() const { return least_nodes < most_nodes; }
};

/// The past of a world whose server is lost, as the new server knows it. Empty for a new world.
struct WorldPast {
  std::int64_t generation = 0;               ///< the last one
  RestartHistory history = {};               ///< before it
  int nodes = 0;                             ///< expected to come back, this one included
  std::vector<std::string> successors = {};  ///< the others of them that would serve
  std::chrono::milliseconds regather{0};     ///< for them to come
  std::int64_t founder = 0;                  ///< 0: a number is drawn
  std::string origin = {};                   ///< where it was founded, as HOST:PORT
};

/// An order for one node.
struct Directive {
  NodeId to;
  Order order;
};
using Directives = std::vector<Directive>;

/// The state of a world whose nodes come and go: who takes part, and in which generation. It has
/// no sockets, threads or clock: events go in with their time, orders come out.
///
/// A generation is one start of all ranks. It ends when a rank fails, a node is lost, leaves or
/// joins; the next one begins when all ranks of the last have ended. What a node says of an older
/// generation changes nothing.
///
/// Ranks that hang are found by their node, which takes them for failed. Where all of a node's
/// ranks only wait for those of others it tells so instead; once all nodes do, the one that is
/// behind is ordered to do that.
class World {
 public:
  using Time = std::chrono::steady_clock::time_point;

  /// Nodes must match the reference in what has to be the same.
  World(const WorldRules& rules, NodeFacts reference, const WorldPast& past = {});

  /// A node that comes from an earlier server tells the last generation of its ranks (0: none), and
  /// by end() when they have ended: until then nothing starts.
  Directives join(NodeId node, const NodeFacts& facts, Time now, std::int64_t had = 0);
  /// A rank has failed; the node is ending the others, and will tell by end() when that is done.
  Directives fail(NodeId node, std::int64_t generation, const std::string& text);
  Directives end(NodeId node, const NodeEnd& end, Time now);
  /// All ranks of a node only wait for others, without progress; or they no longer do.
  Directives wait(NodeId node, std::int64_t generation, const std::optional<NodeWait>& wait);
  /// A node was asked to stop, between two generations.
  Directives leave(NodeId node, int code, Time now);
  /// A node was lost.
  Directives lose(NodeId node, Time now);
  /// Another world of this run goes on elsewhere: all follow it, unless that is this one, or this
  /// one has gone on for longer.
  Directives move(std::int64_t founder, std::int64_t generation, const std::string& endpoint);
  /// Ends the run here: the nodes have gone on without the one that serves.
  Directives give_up(const std::string& why);
  /// Does what is due.
  Directives on_time(Time now);
  std::optional<Time> due() const;

  std::int64_t generation() const { return generation_; }
  std::int64_t founder() const { return founder_; }
  bool has_successors() const { return rules_.is_elastic() && generation_ > 0; }
  bool is_over() const { return phase_ == Phase::kOver; }

  /// Returns whether ranks of this generation may meet now.
  bool is_running(std::int64_t generation) const {
    return phase_ == Phase::kRunning && generation == generation_;
  }

 private:
  enum class Phase { kGathering, kRunning, kEnding, kOver };

  struct Node {
    NodeFacts facts;
    int rank = -1;             // of the last generation in which it took part
    bool is_busy = false;      // its ranks have not ended
    std::int64_t had = 0;      // a generation of an earlier server, whose ranks have not ended
    bool has_trained = false;  // and told which run its folder holds since
    bool has_ended = false;    // its ranks have, in this generation
    NodeEnd end = {};
    std::optional<NodeWait> wait = {};  // of this generation
  };

  void order(NodeId node, Order order);
  void order_end(const std::string& why, bool gently, NodeId but = 0);
  std::string foreign_run(const Node& node) const;
  bool refuse_foreign_runs();
  bool may_grow() const;
  bool only_follows() const;
  bool anyone_is_busy() const;
  void end_of_before(Node& node, const NodeEnd& end, Time now);
  void proceed(Time now);
  void conclude(Time now);
  void call_hang();
  bool is_behind_any(NodeId node, const std::vector<NodeId>& others) const;
  bool are_in_step(const std::vector<NodeId>& waiting) const;
  NodeId node_behind(const std::vector<NodeId>& waiting) const;
  AttemptEnd sum_up() const;
  const Node* cause() const;
  bool dismiss(const std::vector<NodeId>& leaving);
  void hand_over();
  int within_reach() const;
  bool may_replace(const std::string& lost);
  void decide(const AttemptEnd& end, Time now);
  void note_change(std::optional<std::int64_t> step);
  void gather(Time now);
  void try_start(Time now);
  bool awaits_its_nodes(Time now) const;
  bool is_called(Time now) const;
  Time called_at() const;
  void start(Time now);
  std::vector<NodeId> chosen() const;
  NodePlan plan_of_waiting() const;
  std::vector<std::string> successors() const;
  void finish(int code, const std::string& why);
  int count() const { return static_cast<int>(nodes_.size()); }
  Directives taken() { return std::exchange(out_, {}); }

  WorldRules rules_;
  NodeFacts reference_;
  Phase phase_ = Phase::kGathering;
  std::map<NodeId, Node> nodes_;
  std::int64_t generation_ = 0;
  RestartHistory history_;
  std::vector<NodeId> failed_;  // of this generation, the first one first
  std::string lost_;            // the host of a node that this generation has lost; empty: none
  std::optional<Time> gathering_since_, enough_since_;
  int awaited_ = 0;  // nodes of an earlier server that come back
  std::vector<std::string> past_successors_;
  std::chrono::milliseconds regather_;
  std::int64_t founder_;
  std::string origin_, moved_to_;  // as HOST:PORT
  int final_code_ = 0;
  Time started_{};    // this generation
  Time pause_end_{};  // before the next one
  Directives out_;
};

}  // namespace lockstep::launch
