#include "lockstep/net/server_peer.h"

#include <sys/socket.h>

#include "lockstep/net/endpoint.h"

namespace lockstep::net {
namespace {

constexpr std::size_t kPiece = std::size_t{1} << 16;

}  // namespace

ServerPeer::ServerPeer(FileDescriptor socket, Clock::time_point deadline)
    : socket_(std::move(socket)),
      address_(peer_address(socket_)),
      deadline_(deadline),
      challenge_(challenge_of(random_key())) {
  waiting_ = frame_of(challenge_);
  flush();
}

bool ServerPeer::read() {
  char piece[kPiece];
  const ssize_t size = retried([&] { return ::recv(socket_.get(), piece, kPiece, 0); });
  if (size > 0) decoder_.feed({piece, static_cast<std::size_t>(size)});
  return size > 0 || (size < 0 && errno == EAGAIN);
}

std::optional<std::string> ServerPeer::next() {
  auto message = decoder_.next();
  if (message && opener_) message = opener_->open(*message);
  return message;
}

void ServerPeer::welcome(std::string_view answer, const Key& key) {
  const SessionKeys keys = session_keys(challenge_, answer, key);
  waiting_ += frame_of(welcome_of(challenge_, answer, key));
  opener_.emplace(keys.to_server);
  sealer_.emplace(keys.to_client);
  decoder_.set_most(kMostOfAFriend);
}

void ServerPeer::refuse(const std::string& why, bool too_late) {
  waiting_ += frame_of(refusal_of(why, too_late));
  flush();
}

void ServerPeer::send(std::string_view message) {
  if (sealer_) waiting_ += frame_of(sealer_->seal(message));
}

bool ServerPeer::flush() {
  while (waiting() > 0) {
    const ssize_t size = retried(
        [&] { return ::send(socket_.get(), waiting_.data() + sent_, waiting(), MSG_NOSIGNAL); });
    if (size < 0) return errno == EAGAIN;
    sent_ += static_cast<std::size_t>(size);
  }
  waiting_.clear();
  sent_ = 0;
  return true;
}

}  // namespace lockstep::net
