#include "lockstep/launch/rendezvous/agent.h"

#include <algorithm>
#include <poll.h>
#include <utility>
#include <vector>

#include "lockstep/core/error.h"
#include "lockstep/core/exit_code.h"
#include "lockstep/core/network/route.h"
#include "lockstep/core/progress_page.h"
#include "lockstep/launch/patience.h"
#include "lockstep/net/endpoint.h"

namespace lockstep::launch {
namespace {

/// The port for a rank 0 here whose program serves a store by itself, as Python's does.
ReservedPort port_for(const std::string& address) {
  return names_loopback(address) ? ReservedPort() : ReservedPort(0);
}

}  // namespace

Agent::Agent(Supervisor& supervisor, Service& service, const LaunchOptions& options,
    const net::ClientOptions& server, const NodeFacts& facts)
    : supervisor_(supervisor),
      options_(options),
      succession_(service, *options.rendezvous, server, facts),
      membership_(succession_, options.rendezvous->beat, options.rendezvous->dead_after),
      port_(port_for(options.rendezvous->host)),
      death_ns_(options.death_ns) {
  if (options_.rendezvous->local_address.empty())
    options_.rendezvous->local_address = membership_.address();
  succession_.settle(options_.rendezvous->local_address, port_.number());
  membership_.join();
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
    case Order::Kind::kMove:
    case Order::Kind::kBeat:
      break;
  }
  return std::nullopt;
}

/// Returns the next order. Those that an earlier server gave are over.
std::optional<Order> Agent::hear() {
  for (const std::string& text : succession_.take_news()) supervisor_.say(text);
  const int before = server_;
  auto order = membership_.hear(server_);
  if (server_ != before) orders_.clear();
  return order;
}

Order Agent::next_order() {
  while (orders_.empty()) {
    if (auto order = hear())
      orders_.push_back(*std::move(order));
    else if (membership_.is_lost())
      orders_.push_back(order_of_loss());
    else if (leaving_ && Clock::now() >= leave_until_)
      orders_.push_back({.kind = Order::Kind::kFinish, .code = *leaving_});
    else
      await();
  }
  Order order = std::move(orders_.front());
  orders_.pop_front();
  return order;
}

Order Agent::order_of_loss() const {
  if (leaving_) return {.kind = Order::Kind::kFinish, .code = *leaving_};
  return {.kind = Order::Kind::kFinish,
      .code = static_cast<int>(ExitCode::kPeersLost),
      .text = concat("lost the node that serves the rendezvous, ", succession_.endpoint(),
          "; start all nodes again to continue")};
}

void Agent::await() {
  std::vector<pollfd> waited{
      {supervisor_.signals().descriptor(), POLLIN, 0}, {membership_.descriptor(), POLLIN, 0}};
  supervisor_.console().add_to(waited);
  const auto left =
      std::chrono::ceil<std::chrono::milliseconds>(leave_until_ - Clock::now()).count();
  const auto wait = static_cast<int>(std::max<std::int64_t>(0, left));
  ::poll(waited.data(), waited.size(), leaving_ ? wait : -1);
  supervisor_.console().flush();
  for (const int signal : supervisor_.signals().read())
    if (signal != SIGCHLD) on_signal(signal);
}

void Agent::on_signal(int signal) {
  leave_until_ = Clock::now();  // at a second one, at once
  if (leaving_) return;
  leave_until_ += patience::for_a_launcher(options_.grace_period);
  leaving_ = code_of_leaving(signal);
  succession_.leave();
  membership_.tell({.kind = AgentMessage::Kind::kLeave, .end = {.code = *leaving_}});
}

int Agent::code_of_leaving(int signal) const {
  const bool has_saved = options_.lockstep_codes && generation_ > 0;
  return has_saved ? static_cast<int>(ExitCode::kStopped) : 128 + signal;
}

void Agent::start(const NodePlan& plan) {
  if (!membership_.begin(plan.generation, server_)) return;
  if (leaving_) {  // the order was under way when this node was asked to stop
    last_ = {.end = {.code = *leaving_, .signal = SIGTERM}};
    return tell_end(plan.generation);
  }
  if (plan.restart > 0 && !supervisor_.is_quiet())
    supervisor_.report_failure(
        last_, concat("restart ", plan.restart, " of ", plan.max_restarts), "");
  supervisor_.say(concat("generation ", plan.generation, ": node ", plan.node_rank, " of ",
      plan.nodes, ", ", plan.world_size, " ranks in all"));
  generation_ = plan.generation;
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
      .store = succession_.endpoint(),
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
  // Ranks that were ended for another reason say nothing of the signal.
  if (end.signal) leaving_ = is_ending_ ? code_of_leaving(*end.signal) : end.code;
  if (leaving_) succession_.leave();
  const std::string run = options_.rendezvous->run_here();
  succession_.note_run(run);
  leave_until_ = Clock::now() + patience::for_a_launcher(options_.grace_period);
  membership_.tell({.kind = AgentMessage::Kind::kEnded,
      .end = {.generation = generation,
          .code = end.code,
          .failure = end.failure,
          .signal = end.signal,
          .step = end.step,
          .port = port_.number(),
          .run = run}});
}

EndOrder Agent::look() {
  EndOrder result = EndOrder::kNone;
  const int server = server_;
  while (auto order = hear()) {
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
  if (server != server_ && !is_ending_) result = EndOrder::kAtOnce;
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
