#include "lockstep/launch/rendezvous/agent.h"

#include <algorithm>
#include <poll.h>
#include <utility>
#include <vector>

#include "lockstep/core/error.h"
#include "lockstep/core/exit_code.h"
#include "lockstep/core/network/route.h"
#include "lockstep/core/progress_page.h"
#include "lockstep/net/endpoint.h"

namespace lockstep::launch {
namespace {

constexpr std::chrono::seconds kForTheOthers(5);  // to save and end, beyond the grace period

/// The port for a rank 0 here whose program serves a store by itself, as Python's does.
ReservedPort port_for(const std::string& address) {
  return names_loopback(address) ? ReservedPort() : ReservedPort(0);
}

}  // namespace

Agent::Agent(Supervisor& supervisor, Service& service, const LaunchOptions& options,
    const net::ClientOptions& server, NodeFacts facts)
    : supervisor_(supervisor),
      service_(service),
      options_(options),
      server_(server),
      membership_(server, options.rendezvous->beat, options.rendezvous->dead_after),
      facts_(std::move(facts)),
      port_(port_for(options.rendezvous->host)),
      death_ns_(options.death_ns) {
  if (options_.rendezvous->local_address.empty())
    options_.rendezvous->local_address = membership_.address();
  facts_.address = options_.rendezvous->local_address;
  stand_by();
  join();
}

// Also where this node has served or followed before: its facts are the present ones.
void Agent::join() {
  facts_.port = port_.number();
  membership_.tell({.kind = AgentMessage::Kind::kJoin, .facts = facts_});
}

int Agent::run() {
  while (true) {
    if (const auto code = carry_out(next_order())) return *code;
  }
}

std::optional<int> Agent::carry_out(const Order& order) {
  switch (order.kind) {
    case Order::Kind::kStart:
      start(order.plan);
      break;
    case Order::Kind::kWait:
      supervisor_.say(concat("waiting: ", order.text));
      break;
    case Order::Kind::kFinish:
      return finish(order);
    case Order::Kind::kRefuse:
      throw InvalidArgument(concat("run: this node is refused: ", order.text));
    case Order::Kind::kEnd:  // of ranks that have ended here
    case Order::Kind::kHang:
    case Order::Kind::kBeat:
      break;
  }
  return std::nullopt;
}

Order Agent::next_order() {
  while (orders_.empty()) {
    if (auto order = membership_.hear())
      orders_.push_back(*std::move(order));
    else if (membership_.is_lost() && !follow_heir())
      orders_.push_back(order_of_loss());
    else if (leaving_ && Clock::now() >= leave_until_)
      orders_.push_back({.kind = Order::Kind::kFinish, .code = *leaving_});
    else if (!membership_.is_lost())
      await();
  }
  Order order = std::move(orders_.front());
  orders_.pop_front();
  return order;
}

Order Agent::order_of_loss() const {
  return {.kind = Order::Kind::kFinish,
      .code = leaving_.value_or(static_cast<int>(ExitCode::kPeersLost)),
      .text = concat("lost the node that serves the rendezvous, ", server_.endpoint.text(),
          "; start all nodes again to continue")};
}

void Agent::await() {
  std::vector<pollfd> waited{
      {supervisor_.signals().descriptor(), POLLIN, 0}, {membership_.descriptor(), POLLIN, 0}};
  supervisor_.console().add_to(waited);
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(due() - Clock::now()).count();
  ::poll(waited.data(), waited.size(), static_cast<int>(std::max<std::int64_t>(0, left)));
  supervisor_.console().flush();
  for (const int signal : supervisor_.signals().read())
    if (signal != SIGCHLD) on_signal(signal);
}

void Agent::on_signal(int signal) {
  const bool has_saved = options_.lockstep_codes && generation_ > 0;
  leave_until_ = Clock::now();  // at a second one, at once
  if (leaving_) return;
  leave_until_ += options_.grace_period + kForTheOthers;
  leaving_ = has_saved ? static_cast<int>(ExitCode::kStopped) : 128 + signal;
  membership_.tell({.kind = AgentMessage::Kind::kLeave, .end = {.code = *leaving_}});
}

void Agent::start(const NodePlan& plan) {
  if (plan.restart > 0 && !supervisor_.is_quiet())
    supervisor_.report_failure(
        last_, concat("restart ", plan.restart, " of ", plan.max_restarts), "");
  supervisor_.say(concat("generation ", plan.generation, ": node ", plan.node_rank, " of ",
      plan.nodes, ", ", plan.world_size, " ranks in all"));
  generation_ = plan.generation;
  plan_ = plan;
  is_ending_ = false;
  has_told_wait_ = false;
  others_.clear();
  const AttemptPlan attempt{.restart = plan.restart, .death_ns = death_ns_};
  last_ = run_ranks_once(supervisor_, options_for(plan), attempt, plan.master_port, this);
  if (last_.death_ns > 0) death_ns_ = last_.death_ns;
  tell_end(plan.generation);
}

LaunchOptions Agent::options_for(const NodePlan& plan) const {
  LaunchOptions options = options_;
  const RendezvousOptions& meeting = *options_.rendezvous;
  options.nodes = plan.nodes;
  options.node_rank = plan.node_rank;
  options.master_address = plan.master_address;
  options.max_restarts = plan.max_restarts;
  options.span = {.first_rank = plan.first_rank,
      .world_size = plan.world_size,
      .store = server_.endpoint.text(),
      .store_key = plan.store_key,
      .generation = plan.generation,
      .node_address = meeting.local_address};
  return options;
}

void Agent::tell_end(std::int64_t generation) {
  // Another one for the next generation: no process of this one can be met there.
  ReservedPort fresh = port_for(options_.rendezvous->host);
  port_ = std::move(fresh);
  const AttemptEnd& end = last_.end;
  if (end.signal) leaving_ = end.code;
  leave_until_ = Clock::now() + options_.grace_period + kForTheOthers;
  membership_.tell({.kind = AgentMessage::Kind::kEnded,
      .end = {.generation = generation,
          .code = end.code,
          .failure = end.failure,
          .signal = end.signal,
          .step = end.step,
          .port = port_.number()}});
}

EndOrder Agent::look() {
  EndOrder result = EndOrder::kNone;
  while (auto order = membership_.hear()) {
    if (order->kind == Order::Kind::kHang) {
      if (order->generation != generation_ || !has_told_wait_) continue;
      result = EndOrder::kHangs;
      others_ = order->text;
    } else if (order->kind != Order::Kind::kEnd) {
      orders_.push_back(*std::move(order));
    } else if (order->generation == generation_) {
      result = order->gently ? EndOrder::kGently : EndOrder::kAtOnce;
      supervisor_.say(concat("ending the ranks: ", order->text));
    }
  }
  if (membership_.is_lost() && !is_ending_) result = EndOrder::kAtOnce;
  if (result == EndOrder::kGently || result == EndOrder::kAtOnce) {
    is_ending_ = true;
    death_ns_ = monotonic_nanoseconds();
  }
  return result;
}

void Agent::failed(const std::string& headline) {
  membership_.tell(
      {.kind = AgentMessage::Kind::kFailed, .generation = generation_, .text = headline});
}

void Agent::waits(const std::vector<RankSight>& ranks) {
  if (ranks.empty() && !has_told_wait_) return;
  if (has_told_wait_ && !ranks.empty()) return;
  has_told_wait_ = !ranks.empty();
  AgentMessage message{.kind = AgentMessage::Kind::kWaits, .generation = generation_};
  if (has_told_wait_)
    message.wait = NodeWait{least_begun(ranks), waiting_text(ranks, {}), are_in_step(ranks)};
  membership_.tell(message);
}

int Agent::finish(const Order& order) {
  const std::string what = order.code == 0 ? "the run ended" : "the run failed";
  if (!last_.failure.empty()) {
    supervisor_.report_failure(last_, what, order.text);
  } else if (!order.text.empty()) {
    supervisor_.console().write(
        Stream::kErrors, concat("lockstep: ", what, ": ", order.text, "\n"));
  }
  supervisor_.drain();
  return order.code;
}

}  // namespace lockstep::launch
