#pragma once

#include <algorithm>
#include <functional>
#include <iterator>
#include <map>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/launch/rendezvous/world.h"

namespace lockstep::launch {

/// A world under drawn events, with nodes that obey it, and the rules that hold whatever happens:
/// one generation at a time, each rank once, as many nodes as are allowed, and an end.
///
/// `draw(n)` gives a number from 0 to n - 1. A broken rule is a std::logic_error.
class Play {
 public:
  using Draw = std::function<int(int)>;

  Play(const WorldRules& rules, const WorldPast& past, Draw draw)
      : rules_(rules),
        past_(past),
        world_(rules, {.host = "reference"}, past),
        draw_(std::move(draw)),
        generation_(past.generation) {}

  void step() {
    now_ += std::chrono::seconds(draw_(40));
    switch (draw_(10)) {
      case 0:
      case 1:
        return join();
      case 2:
        return lose();
      case 3:
        return fail();
      case 4:
      case 5:
        return end();
      case 6:
        return leave();
      case 7:
      case 8:
        return wait();
      default:
        return take(world_.on_time(now_));
    }
  }

  /// Lets all ranks end well and time pass, after which the world is over.
  void settle() {
    for (int turn = 0; turn < 100 && !world_.is_over() && !nodes_.empty(); ++turn) {
      now_ += std::chrono::seconds(700);
      std::vector<NodeId> running;
      for (const auto& [id, node] : nodes_)
        if (node.running > 0) running.push_back(id);
      for (const NodeId id : running)
        if (nodes_.contains(id)) end(id, 0, false);
      take(world_.on_time(now_));
    }
    must(world_.is_over() || nodes_.empty(), "it comes to an end");
  }

 private:
  std::string drawn_run() {
    constexpr const char* kRuns[] = {"", "ours", "ours", "other"};
    return kRuns[draw_(4)];
  }

  /// The state of a node, by its last orders.
  struct Node {
    std::int64_t running = 0;   // the generation of its ranks; 0: none
    bool is_of_before = false;  // they were started by an earlier server
    bool waits = false;         // as it said last, of these
  };

  static void must(bool holds, const char* rule) {
    if (!holds) throw std::logic_error(rule);
  }

  NodeId anyone() const {
    return std::next(nodes_.begin(), draw_(static_cast<int>(nodes_.size())))->first;
  }

  void join() {
    const NodeId id = ++last_;
    const std::int64_t had = draw_(5) == 0 ? 1 + draw_(4) : 0;
    nodes_[id] = {.running = had, .is_of_before = had > 0};
    const NodeFacts facts{.host = "h",
        .address = "a",
        .port = 1,
        .workers = 1 + draw_(3),
        .serves = draw_(8) == 0,
        .standby_port = draw_(2) == 0 ? 0 : static_cast<int>(id),
        .run = drawn_run()};
    has_served_ = has_served_ || facts.serves;
    take(world_.join(id, facts, now_, had));
  }

  void lose() {
    if (nodes_.empty()) return;
    const NodeId id = anyone();
    nodes_.erase(id);
    take(world_.lose(id, now_));
  }

  void leave() {
    if (!nodes_.empty()) take(world_.leave(anyone(), 143, now_));
  }

  // Of any generation that there was.
  void fail() {
    if (nodes_.empty()) return;
    const auto count = static_cast<int>(world_.generation()) + 1;
    take(world_.fail(anyone(), draw_(count), "it died"));
  }

  void wait() {
    if (nodes_.empty()) return;
    const NodeId id = anyone();
    Node& node = nodes_.at(id);
    const auto count = static_cast<int>(world_.generation()) + 1;
    const std::int64_t generation = draw_(2) == 0 ? node.running : draw_(count);
    std::optional<NodeWait> wait;
    if (draw_(3) > 0)
      wait = NodeWait{.begun = {{1, static_cast<std::uint64_t>(draw_(3))}},
          .text = "",
          .in_step = draw_(2) == 0};
    if (generation == node.running && node.running > 0 && !node.is_of_before)
      node.waits = wait.has_value();
    take(world_.wait(id, generation, wait));
  }

  void end() {
    if (nodes_.empty()) return;
    const int kind = draw_(6);
    end(anyone(), kind < 3 ? kind : 0, kind == 5);
  }

  void end(NodeId id, int failure, bool is_stopped) {
    constexpr int kCodes[] = {0, 1, 5};
    NodeEnd end{.generation = nodes_.at(id).running, .code = kCodes[failure], .port = 1};
    if (failure > 0) end.failure = ExitStatus{.code = end.code};
    if (is_stopped) end.signal = 15;
    end.run = drawn_run();
    nodes_.at(id) = {};
    take(world_.end(id, end, now_));
  }

  void take(const Directives& directives) {
    std::vector<NodePlan> plans;
    for (const auto& [to, order] : directives) {
      must(nodes_.contains(to), "nobody is told anything who has gone");
      std::int64_t& running = nodes_.at(to).running;
      const bool is_of_before = nodes_.at(to).is_of_before;
      if (order.kind == Order::Kind::kFinish || order.kind == Order::Kind::kRefuse ||
          order.kind == Order::Kind::kMove) {
        must(running == 0 || is_of_before, "a run is over when all ranks have ended");
        nodes_.erase(to);
      } else if (order.kind == Order::Kind::kEnd) {
        must(
            order.generation == world_.generation() && running == order.generation && !is_of_before,
            "only ranks of this generation are ended");
      } else if (order.kind == Order::Kind::kHang) {
        must(order.generation == running && all_wait(), "ranks hang where no rank is at work");
      } else if (order.kind == Order::Kind::kStart) {
        must(running == 0, "the ranks before have ended");
        nodes_.at(to).waits = false;
        must(has_served_ || past_.nodes == 0 || now_ >= World::Time{} + past_.regather,
            "a new server has joined before anything starts");
        running = order.plan.generation;
        plans.push_back(order.plan);
      }
    }
    if (!plans.empty()) check_plans(plans);
  }

  bool all_wait() const {
    return std::all_of(nodes_.begin(), nodes_.end(), [](const auto& each) {
      const Node& node = each.second;
      return node.running == 0 || node.is_of_before || node.waits;
    });
  }

  void check_plans(const std::vector<NodePlan>& plans) {
    const auto count = static_cast<int>(plans.size());
    must(rules_.least_nodes <= count && count <= rules_.most_nodes, "as many nodes as allowed");
    std::map<int, int> first_ranks;
    for (const NodePlan& plan : plans) {
      must(plan.generation > generation_, "generations follow each other");
      must(plan.nodes == count && plan.world_size == plans.front().world_size, "one world");
      must(first_ranks.emplace(plan.node_rank, plan.first_rank).second, "each number once");
      must(plan.restart <= plan.max_restarts, "no more restarts than there may be");
    }
    must(first_ranks.begin()->first == 0 && first_ranks.rbegin()->first == count - 1, "no gaps");
    int before = -1;
    for (const auto& [rank, first] : first_ranks) {
      must(first > before && first < plans.front().world_size, "each rank once");
      before = first;
    }
    generation_ = plans.front().generation;
    for (const auto& [id, node] : nodes_)
      must(node.running == 0 || node.running == generation_, "one generation at a time");
  }

  WorldRules rules_;
  WorldPast past_;
  World world_;
  Draw draw_;
  World::Time now_{};
  std::map<NodeId, Node> nodes_;
  NodeId last_ = 0;
  std::int64_t generation_;
  bool has_served_ = false;  // a node that serves has joined
};

/// Draws what a world knows of one whose server is lost; half of them are new.
inline WorldPast drawn_past(const Play::Draw& draw) {
  if (draw(2) == 0) return {};
  WorldPast past{
      .generation = 1 + draw(4), .nodes = 1 + draw(4), .regather = std::chrono::seconds(90)};
  for (int other = 1; other < past.nodes; ++other)
    past.successors.push_back("a:" + std::to_string(1 + draw(6)));
  return past;
}

/// Draws rules, up to 80 events, and then lets things settle.
inline void play(const Play::Draw& draw) {
  const int least = 1 + draw(3);
  Play play({.least_nodes = least,
                .most_nodes = least + draw(3),
                .restarts = {.most = draw(5), .lockstep_codes = draw(2) == 1}},
      drawn_past(draw), draw);
  const int steps = draw(80);
  for (int i = 0; i < steps; ++i) play.step();
  play.settle();
}

}  // namespace lockstep::launch
