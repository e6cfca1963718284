#pragma once

#include <chrono>
#include <optional>
#include <string>

#include "lockstep/launch/rendezvous/messages.h"
#include "lockstep/net/client.h"

namespace lockstep::launch {

/// A node's connection to the rendezvous.
class Membership {
 public:
  using Clock = std::chrono::steady_clock;

  Membership(const net::ClientOptions& options, std::chrono::milliseconds beat,
      std::chrono::milliseconds dead_after);

  /// Returns a descriptor that becomes readable when something has come; -1 when the server is
  /// lost.
  int descriptor() const { return client_ ? client_->descriptor() : -1; }
  bool is_lost() const { return !client_; }

  /// Returns whether this process stood still before it last listened, for so long that the server
  /// has given it up.
  bool was_away() const { return was_away_; }

  /// Returns this node's address on the way to the server.
  std::string address() const { return client_->own_address(); }

  /// Tells the server something. Nothing is thrown here: that the server is lost is seen next by
  /// hear().
  void tell(const AgentMessage& message);

  /// Returns the next order, if one has come, and tells that this node lives when that is due. The
  /// server is lost when its connection has ended, or it has been silent for too long.
  std::optional<Order> hear();

  /// Returns when to call that again at the latest.
  Clock::time_point due() const { return last_beat_ + beat_; }

 private:
  std::optional<Order> next_order();
  void beat_if_due();

  std::optional<net::Client> client_;
  std::chrono::milliseconds beat_, dead_after_;
  Clock::time_point last_beat_, last_heard_;
  bool was_away_ = false;
};

}  // namespace lockstep::launch
