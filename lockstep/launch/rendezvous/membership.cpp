#include "lockstep/launch/rendezvous/membership.h"

#include "lockstep/core/error.h"

namespace lockstep::launch {

Membership::Membership(const net::ClientOptions& options, std::chrono::milliseconds beat,
    std::chrono::milliseconds dead_after)
    : client_(options),
      beat_(beat),
      dead_after_(dead_after),
      last_beat_(Clock::now()),
      last_heard_(last_beat_) {}

void Membership::tell(const AgentMessage& message) {
  if (!client_) return;
  try {
    client_->send(bytes_of(message));
  } catch (const CommError&) {
    client_.reset();
  }
}

std::optional<Order> Membership::hear() {
  if (!client_) return std::nullopt;
  was_away_ = Clock::now() - last_beat_ > dead_after_;
  try {
    auto order = next_order();
    beat_if_due();
    return order;
  } catch (const Error&) {  // it has gone, or sends nonsense
    client_.reset();
  }
  return std::nullopt;
}

std::optional<Order> Membership::next_order() {
  while (const auto message = client_->receive(Clock::time_point())) {
    last_heard_ = Clock::now();
    Order order = order_of(*message);
    if (order.kind != Order::Kind::kBeat) return order;
  }
  return std::nullopt;
}

// What has come was read before: a launcher that was busy itself does not take that for silence.
void Membership::beat_if_due() {
  const auto now = Clock::now();
  if (now < due()) return;
  // Of a beat that was due long ago nothing follows but that we were stopped.
  if (now - last_beat_ > dead_after_ / 2) last_heard_ = now;
  last_beat_ = now;
  if (now - last_heard_ > dead_after_) throw CommError("rendezvous: the server is silent");
  client_->send(bytes_of(AgentMessage{.kind = AgentMessage::Kind::kBeat}));
}

}  // namespace lockstep::launch
