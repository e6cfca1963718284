#pragma once

#include <chrono>
#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/launch/launch_options.h"
#include "lockstep/launch/port.h"
#include "lockstep/launch/ranks/rank_attempt.h"
#include "lockstep/launch/rendezvous/membership.h"
#include "lockstep/launch/rendezvous/service.h"
#include "lockstep/launch/rendezvous/succession.h"
#include "lockstep/launch/supervisor.h"

namespace lockstep::launch {

/// A node's part in a world of several: it joins, runs its ranks as it is ordered to, and tells how
/// they end.
class Agent final : private Outside {
 public:
  /// Joins the node that serves. The facts are completed by address and ports. The service is that
  /// of this node, which it may have to begin.
  Agent(Supervisor& supervisor, Service& service, const LaunchOptions& options,
      const net::ClientOptions& server, const NodeFacts& facts);

  /// Takes part until the run is over here, and returns its exit code. Throws InvalidArgument if
  /// the node is refused.
  int run();

 private:
  int descriptor() const override { return membership_.descriptor(); }
  EndOrder look() override;
  void failed(const std::string& headline) override;
  void waits(const std::vector<RankSight>& ranks) override;
  const std::string& others() const override { return others_; }

  std::optional<int> carry_out(const Order& order);
  std::optional<Order> hear();
  Order next_order();
  Order order_of_loss() const;
  void await();
  void on_signal(int signal);
  int code_of_leaving(int signal) const;
  void start(const NodePlan& plan);
  LaunchOptions options_for(const NodePlan& plan) const;
  void tell_end(std::int64_t generation);
  int finish(const Order& order);

  Supervisor& supervisor_;
  LaunchOptions options_;
  Succession succession_;
  Membership membership_;
  ReservedPort port_;
  std::deque<Order> orders_;  // that came while ranks ran
  int server_ = 0;            // by which they were given
  std::int64_t generation_ = 0;
  bool is_ending_ = false;      // the ranks, by order
  bool has_told_wait_ = false;  // of ranks that wait
  std::string others_;          // for what ranks of other nodes wait
  std::int64_t death_ns_;
  AttemptReport last_;             // of this node's ranks
  std::optional<int> leaving_;     // with this code
  Clock::time_point leave_until_;  // then without an answer
};

}  // namespace lockstep::launch
