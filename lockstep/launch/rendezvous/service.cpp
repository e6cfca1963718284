#include "lockstep/launch/rendezvous/service.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "lockstep/core/error.h"
#include "lockstep/core/text.h"
#include "lockstep/launch/patience.h"
#include "lockstep/net/endpoint.h"
#include "lockstep/net/server.h"

namespace lockstep::launch {
namespace {

void answer(const net::KeyValues::Answers& answers, net::Postbox& out) {
  for (const net::KeyValues::Answer& each : answers) out.send(each.to, bytes_of(each.reply));
}

}  // namespace

Coordinator::Coordinator(const WorldRules& rules, NodeFacts reference, const net::Key& run,
    std::chrono::milliseconds dead_after, const WorldPast& past)
    : world_(rules, std::move(reference), past),
      run_(run),
      dead_after_(dead_after),
      generation_(past.generation) {}

AgentMessage Coordinator::whereabouts(const std::string& endpoint) const {
  return {.kind = AgentMessage::Kind::kMoved,
      .generation = generation_,
      .text = endpoint,
      .founder = world_.founder()};
}

net::ServerHandler::Admission Coordinator::admit(const net::Hello& hello) {
  if (hello.role == net::Role::kAgent) return {.key = run_};
  Admission admission{.key = key_of(hello.generation)};
  if (!world_.is_running(hello.generation))
    admission.too_late = concat("generation ", hello.generation, " of the world is over");
  return admission;
}

void Coordinator::on_open(net::PeerId peer, const net::Hello& hello, net::Postbox&) {
  if (hello.role == net::Role::kAgent)
    agents_[peer] = Clock::now();
  else
    ranks_.insert(peer);
}

void Coordinator::on_message(net::PeerId peer, const std::string& message, net::Postbox& out) {
  if (const auto agent = agents_.find(peer); agent != agents_.end()) {
    agent->second = Clock::now();
    take(peer, agent_message_of(message), out);
  } else if (ranks_.contains(peer)) {
    answer(values_.take(peer, net::store_request_of(message), Clock::now()), out);
  }
}

void Coordinator::take(net::PeerId peer, const AgentMessage& message, net::Postbox& out) {
  using Kind = AgentMessage::Kind;
  const auto now = Clock::now();
  switch (message.kind) {
    case Kind::kBeat:
      return out.send(peer, bytes_of(Order{.kind = Order::Kind::kBeat}));
    case Kind::kJoin:
      return carry_out(world_.join(peer, message.facts, now, message.generation), out);
    case Kind::kFailed:
      return carry_out(world_.fail(peer, message.generation, message.text), out);
    case Kind::kEnded:
      return carry_out(world_.end(peer, message.end, now), out);
    case Kind::kWaits:
      return carry_out(world_.wait(peer, message.generation, message.wait), out);
    case Kind::kLeave:
      return carry_out(world_.leave(peer, message.end.code, now), out);
    case Kind::kMoved:
      return carry_out(world_.move(message.founder, message.generation, message.text), out);
  }
}

void Coordinator::on_close(net::PeerId peer, net::Postbox& out) {
  ranks_.erase(peer);
  values_.forget(peer);
  if (agents_.erase(peer) > 0) carry_out(world_.lose(peer, Clock::now()), out);
}

std::optional<net::ServerHandler::Clock::time_point> Coordinator::on_time(
    Clock::time_point now, net::Postbox& out) {
  look_at_clock(out);
  drop_silent(now, out);
  carry_out(world_.on_time(now), out);
  answer(values_.expire(now), out);
  auto due = now + dead_after_ / 4;
  for (const auto& moment : {world_.due(), values_.next_expiry()})
    if (moment) due = std::min(due, *moment);
  return due;
}

void Coordinator::carry_out(Directives directives, net::Postbox& out) {
  generation_ = world_.generation();
  // Before the orders are sent, so that no rank of an ended generation meets one of the next.
  if (!world_.is_running(world_.generation())) drop_ranks(out);
  for (Directive& directive : directives) {
    Order& order = directive.order;
    if (order.kind == Order::Kind::kStart) {
      values_.clear();
      order.plan.store_key = hex_of(key_of(order.plan.generation));
    }
    out.send(directive.to, bytes_of(order));
  }
}

void Coordinator::drop_ranks(net::Postbox& out) {
  for (const net::PeerId rank : ranks_) out.drop(rank);
  ranks_.clear();
  values_.clear();
}

// This process stood still, so the others have replaced it: Note [Succession].
void Coordinator::look_at_clock(net::Postbox& out) {
  const auto now = BootClock::now();
  const bool was_away = last_time_ && now - *last_time_ > dead_after_;
  last_time_ = now;
  if (was_away && world_.has_successors())
    carry_out(world_.give_up("the node that serves the rendezvous stood still"), out);
}

void Coordinator::drop_silent(Clock::time_point now, net::Postbox& out) {
  std::vector<net::PeerId> silent;
  for (const auto& [agent, heard] : agents_)
    if (now - heard > dead_after_) silent.push_back(agent);
  for (const net::PeerId agent : silent) {
    out.drop(agent);
    agents_.erase(agent);
    carry_out(world_.lose(agent, now), out);
  }
}

Herald::Herald(const net::ClientOptions& origin, News news)
    : origin_(origin), news_(std::move(news)) {
  thread_ = net::without_signals([this] { run(); });
}

Herald::~Herald() {
  {
    const std::lock_guard lock(mutex_);
    is_over_ = true;
  }
  over_.notify_all();
  thread_.join();
}

void Herald::run() {
  std::unique_lock lock(mutex_);
  while (!is_over_) {
    lock.unlock();
    try {
      net::Client(origin_).send(bytes_of(news_()));
    } catch (const std::exception&) {
      // No server, or one of another run.
    }
    lock.lock();
    over_.wait_for(lock, patience::kToAskAgain, [this] { return is_over_; });
  }
}

void Service::begin(FileDescriptor listener, const NodeFacts& reference,
    const std::string& endpoint, const WorldPast& past) {
  herald_.reset();
  server_.reset();
  coordinator_.emplace(rules_, reference, key_, dead_after_, past);
  server_.emplace(std::move(listener), *coordinator_);
  if (past.generation == 0 || past.origin.empty() || past.origin == endpoint) return;
  const net::ClientOptions origin{.endpoint = net::parse_endpoint("rendezvous", past.origin, 0),
      .hello = {.job = job_, .role = net::Role::kAgent},
      .key = key_,
      .timeout = patience::kToAskAgain,
      .gives_up = [] { return true; }};
  herald_.emplace(origin, [this, endpoint] { return coordinator_->whereabouts(endpoint); });
}

void Service::say_goodbye() {
  herald_.reset();
  if (server_) server_->stop(patience::kFarewell);
}

}  // namespace lockstep::launch
