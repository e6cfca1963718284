#include "lockstep/launch/rendezvous/membership.h"

#include <algorithm>
#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>
#include <utility>

#include "lockstep/core/error.h"
#include "lockstep/net/without_signals.h"

namespace lockstep::launch {

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
  succession_.stop();
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

// The last order stands, whatever becomes of the connection, which stays until we go.
void Membership::run() {
  while (!is_over_) {
    try {
      listen();
    } catch (const std::exception&) {
      // The server has gone, or sends nonsense.
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
  const auto left =
      std::chrono::ceil<std::chrono::milliseconds>(last_beat_ + beat_ - Clock::now()).count();
  ::poll(waited, 2, static_cast<int>(std::max<std::int64_t>(0, left)));
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

// What has come was read before: one that stood still itself does not take that for silence.
void Membership::beat_if_due() {
  const auto now = Clock::now();
  if (now < last_beat_ + beat_) return;
  // Of a beat that was due long ago nothing follows but that we were stopped.
  if (now - last_beat_ > dead_after_ / 2) last_heard_ = now;
  last_beat_ = now;
  if (now - last_heard_ > dead_after_) throw CommError("rendezvous: the server is silent");
  client_->send(bytes_of(AgentMessage{.kind = AgentMessage::Kind::kBeat}));
}

/// Follows the next one that serves; false if there is none.
bool Membership::follow() {
  client_.reset();
  {
    // The ranks here are to end now, whoever is found.
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
