#pragma once

#include <algorithm>
#include <gtest/gtest.h>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/launch/rendezvous/world.h"

namespace lockstep::launch {

/// Returns the facts of a node that has the same program as all others.
inline NodeFacts node(const std::string& host, int workers = 2) {
  return {.host = host,
      .address = "10.0.0." + host,
      .port = 1000,
      .workers = workers,
      .same = {{"the program", "A"}}};
}

/// A world, a clock, and the last orders that each node got.
class Worlds : public ::testing::Test {
 protected:
  void make(int least, int most, int restarts = 3, bool codes = true, const WorldPast& past = {}) {
    world_.emplace(WorldRules{.least_nodes = least,
                       .most_nodes = most,
                       .restarts = {.most = restarts, .lockstep_codes = codes},
                       .join_timeout = std::chrono::seconds(600),
                       .last_call = std::chrono::seconds(30),
                       .to_found = to_found_},
        node("reference"), past);
  }

  void take(const Directives& directives) {
    last_.clear();
    for (const Directive& each : directives) last_.emplace_back(each.to, each.order);
  }

  void join(NodeId id, int workers = 2) {
    take(world_->join(id, node(std::to_string(id), workers), now_));
  }

  void end(NodeId id, const NodeEnd& end) { take(world_->end(id, end, now_)); }

  NodeEnd ended(int code = 0) const { return {.generation = world_->generation(), .code = code}; }

  NodeEnd failed(int code, std::int64_t step = -1) const {
    NodeEnd end = ended(code);
    end.failure = ExitStatus{.code = code};
    if (step >= 0) end.step = step;
    return end;
  }

  std::vector<NodeId> told(Order::Kind kind) const {
    std::vector<NodeId> nodes;
    for (const auto& [id, order] : last_)
      if (order.kind == kind) nodes.push_back(id);
    return nodes;
  }

  const Order& order_to(NodeId id) const {
    const auto found = std::find_if(
        last_.begin(), last_.end(), [&](const auto& each) { return each.first == id; });
    static const Order kNone;
    EXPECT_NE(found, last_.end()) << "nothing was told to " << id;
    return found == last_.end() ? kNone : found->second;
  }

  void pass(std::chrono::milliseconds time) {
    now_ += time;
    take(world_->on_time(now_));
  }

  /// Starts a world of two nodes, 2 and 3.
  void start_two(int least = 2, int most = 2, int restarts = 3, bool codes = true) {
    make(least, most, restarts, codes);
    join(2);
    join(3);
    if (least < most) pass(std::chrono::seconds(30));
    ASSERT_EQ(told(Order::Kind::kStart), (std::vector<NodeId>{2, 3}));
  }

  /// Returns the facts of a node that would serve if the one that does were lost.
  static NodeFacts successor(NodeId id) {
    NodeFacts facts = node(std::to_string(id));
    facts.standby_port = 7;
    return facts;
  }

  std::chrono::seconds to_found_{0};
  std::optional<World> world_;
  World::Time now_{};
  std::vector<std::pair<NodeId, Order>> last_;
};

}  // namespace lockstep::launch
