#include <chrono>
#include <cstdint>
#include <deque>
#include <filesystem>
#include <optional>
#include <signal.h>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "lockstep/core/environment.h"
#include "lockstep/core/error.h"
#include "lockstep/core/exit_code.h"
#include "lockstep/core/process.h"
#include "lockstep/core/text.h"
#include "lockstep/formats/checksum.h"
#include "lockstep/launch/child_process.h"
#include "lockstep/launch/launch_options.h"
#include "lockstep/launch/patience.h"
#include "lockstep/launch/ranks/rank_attempt.h"
#include "lockstep/launch/rendezvous/membership.h"
#include "lockstep/launch/rendezvous/service.h"
#include "lockstep/launch/supervisor.h"
#include "lockstep/liveness/progress_page.h"
#include "lockstep/net/authentication.h"
#include "lockstep/net/endpoint.h"

namespace lockstep::launch {
namespace {

/// A node's part in a world of several: it joins, runs its ranks as it is ordered to, and tells how
/// they end.
class Agent final : private OtherNodes {
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
  net::ReservedPort port_;
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

/// The port for a rank 0 here whose program serves a store by itself, as Python's does.
net::ReservedPort port_for(const std::string& address) {
  return names_loopback(address) ? net::ReservedPort() : net::ReservedPort(0);
}

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
  const int wait = leaving_ ? patience::milliseconds_until(leave_until_) : -1;
  for (const int signal : supervisor_.wait(wait, membership_.descriptor())) on_signal(signal);
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
  options.nodes = plan.nodes;
  options.node_rank = plan.node_rank;
  options.master_address = plan.master_address;
  options.max_restarts = plan.max_restarts;
  options.span = plan;
  options.span->store = succession_.endpoint();
  options.span->node_address = options_.rendezvous->local_address;
  return options;
}

void Agent::tell_end(std::int64_t generation) {
  // Another one for the next generation: no process of this one can be met there.
  net::ReservedPort fresh = port_for(options_.rendezvous->host);
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

std::string nodes_text(const RendezvousOptions& meeting) {
  return meeting.least_nodes == meeting.most_nodes
             ? std::to_string(meeting.least_nodes)
             : concat(meeting.least_nodes, ":", meeting.most_nodes);
}

// A program that is read by another is its first argument: python3 train.py.
std::string digest_of_script(const LaunchOptions& options) {
  std::error_code ignored;
  if (options.arguments.empty() ||
      !std::filesystem::is_regular_file(options.arguments.front(), ignored))
    return "none";
  return sha256_of_file(options.arguments.front());
}

std::string command_of(const LaunchOptions& options) {
  std::vector<std::string> words{options.program};
  words.insert(words.end(), options.arguments.begin(), options.arguments.end());
  return joined(words, " ");
}

NodeFacts facts_of(const LaunchOptions& options, bool serves) {
  const std::string program = find_program(options.program, system_variable("PATH"));
  NodeFacts facts{.host = host_name(), .workers = options.workers, .serves = serves};
  facts.run = options.rendezvous->run_here();
  facts.same = {{"the command", command_of(options)},
      {"the SHA-256 of its program", sha256_of_file(program)},
      {"the SHA-256 of its script", digest_of_script(options)},
      {"--nnodes", nodes_text(*options.rendezvous)},
      {"--max-restarts", std::to_string(options.max_restarts)},
      {"--hang-timeout", concat(options.hang_timeout.count(), " ms")}};
  const auto& more = options.rendezvous->same;
  facts.same.insert(facts.same.end(), more.begin(), more.end());
  return facts;
}

WorldRules rules_of(const LaunchOptions& options) {
  const RendezvousOptions& meeting = *options.rendezvous;
  return {.least_nodes = meeting.least_nodes,
      .most_nodes = meeting.most_nodes,
      .restarts = {.most = options.max_restarts, .lockstep_codes = options.lockstep_codes},
      .join_timeout = meeting.join_timeout,
      .last_call = meeting.last_call,
      .to_found = patience::to_found(meeting.dead_after)};
}

/// Says whether this launcher was asked to stop, and remembers how.
class StopRequest {
 public:
  explicit StopRequest(const Supervisor& supervisor) : supervisor_(supervisor) {}

  bool has_come() {
    for (const int signal : supervisor_.outside_signals())
      if (!signal_) signal_ = signal;
    return signal_.has_value();
  }

  std::optional<int> signal() const { return signal_; }

 private:
  const Supervisor& supervisor_;
  std::optional<int> signal_;
};

/// Returns whether the endpoint is of this host and its port taken, yet nobody listens there: as by
/// a connection of another program, which ends some day.
bool is_taken_in_vain(const net::Endpoint& endpoint) {
  constexpr std::chrono::milliseconds kPatience(200);
  return net::listen_at({.host = endpoint.host, .port = 0}) &&
         net::connect_to(endpoint, kPatience).error == ECONNREFUSED;
}

/// Listens at the endpoint if it is an address of this host. A name may get its address later than
/// we start, as in a cluster that is just made.
std::optional<FileDescriptor> listener_of(const RendezvousOptions& meeting, StopRequest& stop) {
  constexpr std::chrono::milliseconds kPause(200);
  const net::Endpoint endpoint{.host = meeting.host, .port = meeting.port};
  const auto end = std::chrono::steady_clock::now() + meeting.join_timeout;
  while (meeting.serves != false) {
    try {
      auto listener = net::listen_at(endpoint);
      if (!listener && is_taken_in_vain(endpoint))
        throw CommError(concat("rendezvous: another program has the port of ", endpoint.text(),
            ", and serves nothing there; give another --rdzv-endpoint"));
      check(listener || meeting.serves != true, "run: --rdzv-conf is_host=true, but ",
          endpoint.text(), " is no address of this host, or is in use; give another ",
          "--rdzv-endpoint");
      return listener;
    } catch (const CommError&) {
      if (stop.has_come() || std::chrono::steady_clock::now() >= end) throw;
    }
    std::this_thread::sleep_for(kPause);
  }
  return std::nullopt;
}

net::Key key_for(const LaunchOptions& options) {
  const RendezvousOptions& meeting = *options.rendezvous;
  const std::string secret = net::shared_secret(meeting.secret_file);
  check(!secret.empty() || meeting.insecure || names_loopback(meeting.host),
      "run: whoever reaches ", meeting.host, ":", meeting.port,
      " could join this run; give all nodes one secret, by LOCKSTEP_SECRET or "
      "--rdzv-conf secret_file=FILE, or --insecure if only you reach it");
  return net::key_of_run(secret, options.run_id);
}

int take_part(
    const LaunchOptions& options, const net::Key& key, Supervisor& supervisor, StopRequest& stop) {
  const RendezvousOptions& meeting = *options.rendezvous;
  const std::string endpoint = net::Endpoint{.host = meeting.host, .port = meeting.port}.text();
  Service service(rules_of(options), meeting.dead_after, key, options.run_id);
  if (auto listener = listener_of(meeting, stop))
    service.begin(*std::move(listener), facts_of(options, true), endpoint, {.origin = endpoint});
  const net::ClientOptions server{.endpoint = {.host = meeting.host, .port = meeting.port},
      .hello = {.job = options.run_id, .role = net::Role::kAgent},
      .key = key,
      .timeout = meeting.join_timeout,
      .gives_up = [&stop] { return stop.has_come(); }};
  const NodeFacts facts = facts_of(options, service.is_here());
  const int code = Agent(supervisor, service, options, server, facts).run();
  service.say_goodbye();
  return code;
}

}  // namespace

void check_rendezvous(const RendezvousOptions& meeting) {
  check(1 <= meeting.least_nodes && meeting.least_nodes <= meeting.most_nodes,
      "--nnodes: must be a number of nodes, or MIN:MAX with MIN from 1 to MAX: ",
      nodes_text(meeting));
  check(!meeting.host.empty(),
      "--rdzv-endpoint: nodes that find each other need one: HOST:PORT of the node that serves");
  check(meeting.beat.count() > 0 && meeting.dead_after >= 2 * meeting.beat,
      "--rdzv-conf: keep_alive_max_attempt must be at least 2, keep_alive_interval above 0");
}

int launch_together(const LaunchOptions& options) {
  check_rendezvous(*options.rendezvous);
  check_options(options);
  find_program(options.program, system_variable("PATH"));
  const net::Key key = key_for(options);
  Supervisor supervisor(options.signals, options.quiet);
  StopRequest stop(supervisor);
  try {
    return take_part(options, key, supervisor, stop);
  } catch (const CommError&) {
    if (!stop.signal()) throw;
    return 128 + *stop.signal();
  }
}

}  // namespace lockstep::launch
