#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <string_view>

#include "lockstep/core/file_descriptor.h"
#include "lockstep/net/frame.h"
#include "lockstep/net/handshake.h"
#include "lockstep/net/sealing.h"

namespace lockstep::net {

/// One connection of a server. It never waits: what cannot be sent yet is kept.
class ServerPeer {
 public:
  using Clock = std::chrono::steady_clock;

  /// Sends the challenge. A stranger has until the deadline to answer it.
  ServerPeer(FileDescriptor socket, Clock::time_point deadline);

  int descriptor() const { return socket_.get(); }
  const std::string& address() const { return address_; }
  Clock::time_point deadline() const { return deadline_; }

  /// Says whether the other has shown that it knows the key.
  bool is_known() const { return opener_.has_value(); }

  /// Reads what has come, 64 KiB at most; false when the other has closed.
  bool read();

  /// Returns the next message that was read, from one who is known without its mark. Throws
  /// DataError for nonsense.
  std::optional<std::string> next();

  /// Says whether a stranger's answer shows that it knows the key.
  bool knows(std::string_view answer, const Key& key) const {
    return knows_key(challenge_, answer, key);
  }

  /// Takes one who does as known, and sends the welcome.
  void welcome(std::string_view answer, const Key& key);

  /// Sends a refusal as far as possible.
  void refuse(const std::string& why, bool too_late);

  /// Sends a message to one who is known.
  void send(std::string_view message);

  /// Sends what waits, as far as that is possible now; false when the other has closed.
  bool flush();
  std::size_t waiting() const { return waiting_.size() - sent_; }

 private:
  FileDescriptor socket_;
  std::string address_;
  Clock::time_point deadline_;
  std::string challenge_;
  FrameDecoder decoder_{kMostOfAStranger};
  std::optional<Sealer> sealer_;
  std::optional<Opener> opener_;
  std::string waiting_;
  std::size_t sent_ = 0;  // of what waits
};

}  // namespace lockstep::net
