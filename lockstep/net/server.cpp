#include "lockstep/net/server.h"

#include <algorithm>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>
#include <vector>

#include "lockstep/net/endpoint.h"

namespace lockstep::net {
namespace {

constexpr PeerId kListener = 0, kWakeUp = 1;
constexpr int kAcceptedAtOnce = 32;
constexpr const char* kNotAuthenticated = "the secret or the run's id is another than here";

std::int64_t nanoseconds_of(Server::Clock::time_point time) {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(time.time_since_epoch()).count();
}

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
  char piece[kReadSize];
  const ssize_t size = retried([&] { return ::recv(socket_.get(), piece, kReadSize, 0); });
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
  decoder_.set_most(kLargestMessage);
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

Server::Server(FileDescriptor listener, ServerHandler& handler, const ServerLimits& limits)
    : listener_(std::move(listener)),
      events_(::epoll_create1(EPOLL_CLOEXEC)),
      wake_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)),
      handler_(handler),
      limits_(limits) {
  if (!events_ || !wake_) throw_errno("rendezvous: make a server");
  watch(listener_.get(), kListener, false, EPOLL_CTL_ADD);
  watch(wake_.get(), kWakeUp, false, EPOLL_CTL_ADD);
  thread_ = without_signals([this] { run(); });
}

Server::~Server() { stop(std::chrono::milliseconds(0)); }

void Server::stop(std::chrono::milliseconds patience) {
  if (!thread_.joinable()) return;
  end_ns_ = nanoseconds_of(Clock::now() + patience);
  const std::uint64_t one = 1;
  [[maybe_unused]] const ssize_t written = ::write(wake_.get(), &one, sizeof(one));
  thread_.join();
}

bool Server::is_over() const {
  const std::int64_t end = end_ns_;
  if (end == 0) return false;
  return peers_.size() == unauthenticated_.size() || nanoseconds_of(Clock::now()) >= end;
}

void Server::run() {
  while (!is_over()) {
    epoll_event events[64];
    const int count = ::epoll_wait(events_.get(), events, 64, milliseconds_to_wait(Clock::now()));
    for (int i = 0; i < count; ++i) {
      const PeerId id = events[i].data.u64;
      std::uint64_t ignored = 0;
      if (id == kListener)
        accept_some();
      else if (id == kWakeUp) [[maybe_unused]]
        const auto size = ::read(wake_.get(), &ignored, 8);
      else
        serve(id, (events[i].events & ~static_cast<unsigned>(EPOLLOUT)) != 0);
    }
    const auto now = Clock::now();
    due_ = handler_.on_time(now, *this);
    expire(now);
    close_dead();
  }
}

int Server::milliseconds_to_wait(Clock::time_point now) const {
  auto wake = now + std::chrono::seconds(1);
  if (due_) wake = std::min(wake, *due_);
  if (!unauthenticated_.empty())
    wake = std::min(wake, peers_.at(*unauthenticated_.begin()).deadline());
  const std::int64_t end = end_ns_;
  if (end != 0) wake = std::min(wake, now + std::chrono::nanoseconds(end - nanoseconds_of(now)));
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(wake - now).count();
  return static_cast<int>(std::max<std::int64_t>(0, left));
}

void Server::watch(int descriptor, PeerId id, bool writes, int operation) const {
  epoll_event event{};
  event.events = EPOLLIN | (writes ? EPOLLOUT : 0U);
  event.data.u64 = id;
  if (::epoll_ctl(events_.get(), operation, descriptor, &event) != 0)
    throw_errno("rendezvous: watch a connection");
}

void Server::accept_some() {
  for (int turn = 0; turn < kAcceptedAtOnce; ++turn) {
    FileDescriptor socket(
        ::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (!socket) {
      // Without a free descriptor the oldest unauthenticated connection gives way.
      if ((errno == EMFILE || errno == ENFILE) && !unauthenticated_.empty())
        closing_.emplace(*unauthenticated_.begin(), false);
      return;
    }
    try {
      ServerPeer peer(std::move(socket), Clock::now() + limits_.for_proof);
      make_room(peer.address());
      const PeerId id = next_++;
      watch(peer.descriptor(), id, peer.waiting() > 0, EPOLL_CTL_ADD);
      peers_.emplace(id, std::move(peer));
      unauthenticated_.insert(id);
    } catch (const std::system_error&) {
      // It has closed meanwhile.
    }
  }
}

/// Closes the oldest unauthenticated connection where there are too many: a client that knows the
/// key needs only one message to prove it.
void Server::make_room(const std::string& address) {
  std::vector<PeerId> of_host;
  for (const PeerId id : unauthenticated_)
    if (peers_.at(id).address() == address) of_host.push_back(id);
  const auto evict = [&](PeerId id) {
    closing_.emplace(id, false);
    close_dead();
  };
  if (of_host.size() >= limits_.unauthenticated_of_a_host)
    evict(of_host.front());
  else if (unauthenticated_.size() >= limits_.unauthenticated)
    evict(*unauthenticated_.begin());
}

void Server::serve(PeerId id, bool readable) {
  const auto found = peers_.find(id);
  if (found == peers_.end() || closing_.contains(id)) return;
  ServerPeer& peer = found->second;
  try {
    if (readable && !peer.read()) closing_.emplace(id, peer.is_known());
    for (auto message = peer.next(); message; message = peer.next()) {
      take(id, peer, *message);
      if (closing_.contains(id)) return;
    }
  } catch (const std::exception&) {
    closing_.emplace(id, peer.is_known());  // malformed; not logged, as that would fill logs
  }
  flush(id, peer);
}

void Server::take(PeerId id, ServerPeer& peer, const std::string& message) {
  if (peer.is_known()) return handler_.on_message(id, message, *this);
  take_answer(id, peer, message);
}

void Server::take_answer(PeerId id, ServerPeer& peer, const std::string& answer) {
  const Hello hello = hello_of(answer);
  const ServerHandler::Admission admission = handler_.admit(hello);
  if (!peer.knows(answer, admission.key)) {
    peer.refuse(kNotAuthenticated, false);
    closing_.emplace(id, false);
  } else if (!admission.too_late.empty() ||
             peers_.size() - unauthenticated_.size() >= limits_.authenticated) {
    peer.refuse(admission.too_late.empty() ? "too many connections" : admission.too_late, true);
    closing_.emplace(id, false);
  } else {
    peer.welcome(answer, admission.key);
    unauthenticated_.erase(id);
    handler_.on_open(id, hello, *this);
  }
}

void Server::flush(PeerId id, ServerPeer& peer) {
  const bool had = peer.waiting() > 0;
  if (!peer.flush()) closing_.emplace(id, peer.is_known());
  if (had) watch(peer.descriptor(), id, peer.waiting() > 0, EPOLL_CTL_MOD);
}

void Server::send(PeerId id, std::string_view message) {
  const auto found = peers_.find(id);
  if (found == peers_.end() || closing_.contains(id)) return;
  ServerPeer& peer = found->second;
  peer.send(message);
  flush(id, peer);
  if (peer.waiting() > limits_.waiting) closing_.emplace(id, true);
}

void Server::drop(PeerId id) { closing_.emplace(id, false); }

void Server::expire(Clock::time_point now) {
  for (const PeerId id : unauthenticated_) {
    if (peers_.at(id).deadline() > now) return;
    closing_.emplace(id, false);
  }
}

/// Closes the connections that are marked for it. The handler may respond by closing others.
void Server::close_dead() {
  while (!closing_.empty()) {
    const auto [id, tells] = *closing_.begin();
    unauthenticated_.erase(id);
    const bool existed = peers_.erase(id) > 0;
    closing_.erase(closing_.begin());
    if (existed && tells) handler_.on_close(id, *this);
  }
}

}  // namespace lockstep::net
