#pragma once

#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <thread>
#include <utility>

#include "lockstep/core/file_descriptor.h"
#include "lockstep/net/authentication.h"
#include "lockstep/net/wire.h"

namespace lockstep::net {

/// Starts a thread that takes no signals: those are for the thread that starts it.
template <typename Body>
std::thread without_signals(Body body) {
  sigset_t all, before;
  ::sigfillset(&all);
  ::pthread_sigmask(SIG_SETMASK, &all, &before);
  std::thread thread(std::move(body));
  ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
  return thread;
}

/// One connection of a server. It never blocks: what cannot be sent yet is kept.
class ServerPeer {
 public:
  using Clock = std::chrono::steady_clock;

  /// Sends the challenge. The client has until the deadline to answer it.
  ServerPeer(FileDescriptor socket, Clock::time_point deadline);

  int descriptor() const { return socket_.get(); }
  const std::string& address() const { return address_; }
  Clock::time_point deadline() const { return deadline_; }

  /// Returns whether the client is authenticated.
  bool is_known() const { return opener_.has_value(); }

  /// Reads up to 64 KiB; returns false when the client has closed the connection.
  bool read();

  /// Returns the next message that was read, after authentication without its tag. Throws DataError
  /// for malformed bytes.
  std::optional<std::string> next();

  /// Returns whether an answer to the challenge proves that the client knows the key.
  bool knows(std::string_view answer, const Key& key) const {
    return knows_key(challenge_, answer, key);
  }

  /// Accepts the client as authenticated, and sends the welcome.
  void welcome(std::string_view answer, const Key& key);

  /// Sends a refusal as far as possible.
  void refuse(const std::string& why, bool too_late);

  /// Sends a message to an authenticated client.
  void send(std::string_view message);

  /// Sends as much pending data as it can now; returns false when the client has closed.
  bool flush();
  std::size_t waiting() const { return waiting_.size() - sent_; }

 private:
  FileDescriptor socket_;
  std::string address_;
  Clock::time_point deadline_;
  std::string challenge_;
  FrameDecoder decoder_{kLargestHandshake};
  std::optional<Sealer> sealer_;
  std::optional<Opener> opener_;
  std::string waiting_;
  std::size_t sent_ = 0;  // of what waits
};

/// The number of a connection, which no other of the same server ever has.
using PeerId = std::uint64_t;

/// The connections that a handler may write to. Messages are queued; a peer that reads too slowly
/// is dropped.
class Postbox {
 public:
  virtual ~Postbox() = default;
  virtual void send(PeerId peer, std::string_view message) = 0;
  virtual void drop(PeerId peer) = 0;  ///< once what is queued is sent; on_close() is not called
};

/// Handles the events of a server's connections. All calls come from the server's thread.
class ServerHandler {
 public:
  using Clock = std::chrono::steady_clock;

  /// The answer to a hello.
  struct Admission {
    Key key;                    ///< shared with the clients of this job
    std::string too_late = {};  ///< why a client with the key is refused all the same
  };

  virtual ~ServerHandler() = default;
  virtual Admission admit(const Hello& hello) = 0;
  virtual void on_open(PeerId peer, const Hello& hello, Postbox& out) = 0;
  /// Throws DataError for a malformed message: its sender is dropped.
  virtual void on_message(PeerId peer, const std::string& message, Postbox& out) = 0;
  virtual void on_close(PeerId peer, Postbox& out) = 0;
  /// Does what is due, and returns when to call it again at the latest.
  virtual std::optional<Clock::time_point> on_time(Clock::time_point now, Postbox& out) = 0;
};

/// The limits of a server.
struct ServerLimits {
  std::size_t unauthenticated = 256;           ///< connections; the oldest gives way
  std::size_t unauthenticated_of_a_host = 64;  ///< from one address
  std::size_t authenticated = 20'000;          ///< connections
  std::size_t waiting = std::size_t{8} << 20;  ///< bytes that a client has not read yet
  std::chrono::milliseconds for_proof{2000};
};

/// A thread that serves authenticated clients; no client can block another.
class Server final : private Postbox {
 public:
  using Clock = std::chrono::steady_clock;

  /// Starts it. The handler must live longer.
  Server(FileDescriptor listener, ServerHandler& handler, const ServerLimits& limits = {});

  /// Stops it: at once, unless stop() was called.
  ~Server() override;

  /// Waits until all authenticated clients have left, for so long at most.
  void stop(std::chrono::milliseconds patience);

 private:
  void send(PeerId peer, std::string_view message) override;
  void drop(PeerId peer) override;

  void run();
  bool is_over() const;
  int milliseconds_to_wait(Clock::time_point now) const;
  void watch(int descriptor, PeerId id, bool writes, int operation) const;
  void accept_some();
  void make_room(const std::string& address);
  void serve(PeerId id, bool readable);
  void take(PeerId id, ServerPeer& peer, const std::string& message);
  void take_answer(PeerId id, ServerPeer& peer, const std::string& answer);
  void flush(PeerId id, ServerPeer& peer);
  void expire(Clock::time_point now);
  void close_dead();

  FileDescriptor listener_, events_, wake_;
  ServerHandler& handler_;
  ServerLimits limits_;
  std::map<PeerId, ServerPeer> peers_;
  std::set<PeerId> unauthenticated_;  // the oldest first
  std::map<PeerId, bool> closing_;    // to be closed; and whether the handler is told
  PeerId next_ = 2;                   // below: the listener, the wake-up
  std::optional<Clock::time_point> due_;
  std::atomic<std::int64_t> end_ns_{0};  // 0: it goes on
  std::thread thread_;
};

}  // namespace lockstep::net
