#pragma once

#include <chrono>
#include <functional>
#include <limits>
#include <optional>
#include <string>
#include <string_view>

#include "lockstep/core/file_descriptor.h"
#include "lockstep/net/authentication.h"
#include "lockstep/net/endpoint.h"
#include "lockstep/net/wire.h"

namespace lockstep::net {

/// The server, the hello message for it, and how long to try.
struct ClientOptions {
  Endpoint endpoint;
  Hello hello;
  Key key;
  std::chrono::milliseconds timeout = std::chrono::minutes(5);
  std::function<bool()> gives_up = {};  ///< asked between two tries
  /// Refused connections before it gives up: nobody listens there. A slow host is waited for.
  int most_refusals = std::numeric_limits<int>::max();
};

/// A connection to a server, with mutual authentication.
class Client {
 public:
  using Clock = std::chrono::steady_clock;

  /// Tries until the server is there, at growing intervals of at most half a second. Throws
  /// InvalidArgument where the secret or the protocol differs, TimeoutError with the last obstacle,
  /// CommError if we came too late or gave up.
  explicit Client(const ClientOptions& options);

  /// Returns a descriptor that becomes readable when a message has come.
  int descriptor() const { return socket_.get(); }
  std::string own_address() const { return net::own_address(socket_); }

  /// Sends a message. Throws CommError when the server has gone, or reads nothing for five seconds.
  void send(std::string_view message);

  /// Returns the next message, if one comes until then. Throws CommError when the server has gone.
  std::optional<std::string> receive(Clock::time_point until);

 private:
  std::optional<std::string> next_frame(Clock::time_point until);
  void send_frame(std::string_view message);
  bool await(short event, Clock::time_point until) const;
  /// Returns the obstacle; empty: it is connected.
  std::string try_once(const ClientOptions& options, Clock::time_point end);
  void shake_hands(const ClientOptions& options);

  int refusals_ = 0;
  FileDescriptor socket_;
  FrameDecoder decoder_{kLargestMessage};
  std::optional<Sealer> sealer_;
  std::optional<Opener> opener_;
};

}  // namespace lockstep::net
