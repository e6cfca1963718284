#include "lockstep/launch/rendezvous/membership.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>
#include <utility>

#include "lockstep/core/error.h"
#include "lockstep/launch/patience.h"
#include "lockstep/net/endpoint.h"
#include "lockstep/net/server.h"

namespace lockstep::launch {
namespace {

constexpr int kMostRefusals = 4;  // a node listens as long as it lives

}  // namespace

// Note [Succession]
// In a world that may shrink, each node that does not serve listens at a port of its own, and every
// plan names these ports. When the connection to the node that serves ends, or that one is silent,
// a node goes through the list: the first that is itself begins to serve, the first that answers is
// followed. That is done at once, by the thread of the connection; the ranks are ended meanwhile,
// however long one needs to save, and the world starts again when those of all have ended. One that
// has not noticed the loss yet answers when it has: until then its kernel keeps the connection. One
// that stood still itself for so long takes no part: the others have gone on without it.
//
// A node at whose address the world was founded may be started again, and would found another. The
// one that serves asks there all the time, and who would found a world waits to be asked.
//
// Nodes that are cut off from each other may go on separately, unless MIN is more than half of MAX;
// a run's folder that they share lets one in.
Succession::Succession(Service& service, const RendezvousOptions& meeting,
    const net::ClientOptions& server, const NodeFacts& facts)
    : service_(service), meeting_(meeting), server_(server), facts_(facts) {}

void Succession::settle(const std::string& address, int port) {
  const std::lock_guard lock(mutex_);
  facts_.address = address;
  facts_.port = port;
  stand_by();
}

void Succession::stand_by() {
  if (facts_.serves || meeting_.least_nodes == meeting_.most_nodes) return;
  auto listener = net::listen_at({.host = facts_.address, .port = 0});
  if (!listener) return;
  standby_ = *std::move(listener);
  facts_.standby_port = net::port_of_socket(standby_);
}

void Succession::leave() {
  is_leaving_ = true;
  const std::lock_guard lock(mutex_);
  standby_ = FileDescriptor();
  facts_.standby_port = 0;
}

void Succession::note(const NodePlan& plan) {
  const std::lock_guard lock(mutex_);
  plan_ = plan;
}

void Succession::move_to(const std::string& endpoint) {
  const std::lock_guard lock(mutex_);
  is_moving_ = true;
  if (!endpoint.empty()) plan_.successors = {endpoint};
}

std::optional<std::vector<std::string>> Succession::successors_of_loss() {
  const std::lock_guard lock(mutex_);
  const bool are_enough = std::ssize(plan_.successors) >= meeting_.least_nodes;
  const bool is_cut_off = facts_.serves || !are_enough;
  if (is_leaving_ || was_away_ || (is_cut_off && !is_moving_)) return std::nullopt;
  if (std::exchange(facts_.serves, false)) stand_by();  // it was told to move
  news_.push_back(concat(std::exchange(is_moving_, false) ? "the world moves on from "
                                                          : "lost the node that serves the "
                                                            "rendezvous, ",
      server_.endpoint.text()));
  return std::exchange(plan_.successors, {});
}

std::optional<net::Client> Succession::next() {
  std::vector<std::string> successors = successors_of_loss().value_or(std::vector<std::string>());
  for (int tried = 0; !successors.empty() && !is_leaving_; ++tried) {
    const std::string successor = successors.front();
    successors.erase(successors.begin());
    {
      const std::lock_guard lock(mutex_);
      plan_.successors = successors;  // if that one is lost before it has made a plan
      server_.endpoint = net::parse_endpoint("rendezvous", successor, 0);
      if (standby_ && successor == facts_.standby()) serve(successor, successors, tried);
    }
    if (auto client = connect(successor)) return client;
  }
  return std::nullopt;
}

std::optional<net::Client> Succession::connect(const std::string& successor) {
  net::ClientOptions options = server_;
  options.timeout = patience::for_a_successor(meeting_.dead_after);
  options.most_refusals = kMostRefusals;
  options.gives_up = [this] { return is_leaving_.load(); };
  try {
    return net::Client(options);
  } catch (const std::exception& error) {
    tell(concat("the next to serve, ", successor, ", cannot be reached: ", error.what()));
  }
  return std::nullopt;
}

void Succession::serve(const std::string& endpoint, std::vector<std::string> others, int tried) {
  facts_.serves = true;
  facts_.standby_port = 0;
  const int nodes = 1 + static_cast<int>(others.size());
  service_.begin(std::move(standby_), facts_, endpoint,
      {.generation = plan_.generation,
          .history = plan_.history,
          .nodes = nodes,
          .successors = std::move(others),
          .regather = patience::to_regather(meeting_.dead_after, tried),
          .founder = plan_.founder,
          .origin = plan_.origin});
  news_.push_back(concat(
      "this node serves the rendezvous now; nodes that join need ", "--rdzv-endpoint ", endpoint));
}

void Succession::note_run(const std::string& run) {
  const std::lock_guard lock(mutex_);
  facts_.run = run;
}

NodeFacts Succession::facts() const {
  const std::lock_guard lock(mutex_);
  return facts_;
}

std::string Succession::endpoint() const {
  const std::lock_guard lock(mutex_);
  return server_.endpoint.text();
}

void Succession::tell(const std::string& text) {
  const std::lock_guard lock(mutex_);
  news_.push_back(text);
}

std::vector<std::string> Succession::take_news() {
  const std::lock_guard lock(mutex_);
  return std::exchange(news_, {});
}

Membership::Membership(
    Succession& succession, std::chrono::milliseconds beat, std::chrono::milliseconds dead_after)
    : succession_(succession),
      beat_(beat),
      dead_after_(dead_after),
      news_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)),
      wake_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)),
      client_(succession.first()),
      last_beat_(Clock::now()),
      last_heard_(last_beat_),
      address_(client_->own_address()) {
  if (!news_ || !wake_) throw_errno("rendezvous: make an event");
}

Membership::~Membership() {
  is_over_ = true;
  succession_.leave();
  ring(wake_);
  if (thread_.joinable()) thread_.join();
}

void Membership::join() {
  introduce();
  thread_ = net::without_signals([this] { run(); });
}

void Membership::ring(const FileDescriptor& bell) const {
  const std::uint64_t one = 1;
  [[maybe_unused]] const ssize_t written = ::write(bell.get(), &one, sizeof(one));
}

void Membership::tell(const AgentMessage& message) {
  const std::lock_guard lock(mutex_);
  if (message.kind == AgentMessage::Kind::kEnded) ended_ = message;
  if (message.kind == AgentMessage::Kind::kLeave) leave_ = message;
  outbox_.push_back(message);
  ring(wake_);
}

std::optional<Order> Membership::hear(int& server) {
  const std::lock_guard lock(mutex_);
  server = server_;
  if (inbox_.empty()) {
    std::uint64_t ignored = 0;
    [[maybe_unused]] const ssize_t size = ::read(news_.get(), &ignored, sizeof(ignored));
    return std::nullopt;
  }
  Order order = std::move(inbox_.front());
  inbox_.pop_front();
  return order;
}

bool Membership::begin(std::int64_t generation, int server) {
  const std::lock_guard lock(mutex_);
  if (server != server_ || is_lost_) return false;
  begun_ = generation;
  ended_.reset();
  return true;
}

// The last order stands, whatever becomes of the connection, which stays open until we leave.
void Membership::run() {
  while (!is_over_) {
    try {
      listen();
    } catch (const std::exception&) {
      // The server has gone, or sent malformed bytes.
    }
    if (!is_over_ && !follow()) break;
  }
}

void Membership::listen() {
  while (!is_over_) {
    send_all();
    await();
    const bool was_away = Clock::now() - last_beat_ > dead_after_;
    if (was_away) succession_.note_absence(true);
    const bool is_known = take_orders();  // to the server, unless that is old news
    if (is_known && !was_away) succession_.note_absence(false);
    if (!is_over_) beat_if_due();
  }
}

void Membership::await() const {
  pollfd waited[] = {{client_->descriptor(), POLLIN, 0}, {wake_.get(), POLLIN, 0}};
  ::poll(waited, 2, patience::milliseconds_until(last_beat_ + beat_));
  std::uint64_t ignored = 0;
  [[maybe_unused]] const ssize_t size = ::read(wake_.get(), &ignored, sizeof(ignored));
}

bool Membership::take_orders() {
  bool has_heard = false;
  while (const auto message = client_->receive({})) {
    has_heard = true;
    last_heard_ = Clock::now();
    Order order = order_of(*message);
    if (order.kind == Order::Kind::kBeat) continue;
    if (order.kind == Order::Kind::kMove) {
      succession_.move_to(order.text);
      throw CommError("rendezvous: it goes on elsewhere");
    }
    if (order.plan.generation > 0) succession_.note(order.plan);
    const bool is_last = order.kind == Order::Kind::kFinish || order.kind == Order::Kind::kRefuse;
    {
      const std::lock_guard lock(mutex_);
      inbox_.push_back(std::move(order));
    }
    ring(news_);
    if (is_last) {
      is_over_ = true;
      break;
    }
  }
  return has_heard;
}

void Membership::send_all() {
  while (true) {
    std::string bytes;
    {
      const std::lock_guard lock(mutex_);
      if (outbox_.empty()) return;
      bytes = bytes_of(outbox_.front());
      outbox_.pop_front();
    }
    client_->send(bytes);
  }
}

// Called after reading, so that a node that stood still itself does not take that for silence.
void Membership::beat_if_due() {
  const auto now = Clock::now();
  if (now < last_beat_ + beat_) return;
  // A beat that was due long ago only shows that we were stopped.
  if (now - last_beat_ > dead_after_ / 2) last_heard_ = now;
  last_beat_ = now;
  if (now - last_heard_ > dead_after_) throw CommError("rendezvous: the server is silent");
  client_->send(bytes_of(AgentMessage{.kind = AgentMessage::Kind::kBeat}));
}

/// Follows the successor; false if there is none.
bool Membership::follow() {
  client_.reset();
  {
    // The ranks here have to end now, whichever server is found.
    const std::lock_guard lock(mutex_);
    ++server_;
    inbox_.clear();
    ring(news_);
  }
  try {
    client_ = succession_.next();
  } catch (const std::exception& error) {
    succession_.tell(concat("cannot follow: ", error.what()));
  }
  last_beat_ = last_heard_ = Clock::now();
  if (client_) {
    introduce();
    return true;
  }
  is_lost_ = true;
  ring(news_);
  return false;
}

void Membership::introduce() {
  const std::lock_guard lock(mutex_);
  outbox_.clear();
  outbox_.push_back(
      {.kind = AgentMessage::Kind::kJoin, .facts = succession_.facts(), .generation = begun_});
  if (ended_) outbox_.push_back(*ended_);
  if (leave_) outbox_.push_back(*leave_);
}

}  // namespace lockstep::launch
