// A store over TCP: c10d's, on one address, and with an end to each wait.

#include <cstring>
#include <memory>
#include <mutex>
#include <netdb.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <thread>

#include <torch/csrc/distributed/c10d/TCPStore.hpp>

#include "lockstep/comm/quiet_log.h"
#include "lockstep/comm/store.h"
#include "lockstep/comm/within.h"
#include "lockstep/core/error.h"
#include "lockstep/core/file_descriptor.h"
#include "lockstep/core/network/route.h"

namespace lockstep {
namespace {

using std::chrono::milliseconds;
using Clock = std::chrono::steady_clock;

constexpr milliseconds kFirstPause(5), kLongestPause(500);
constexpr milliseconds kLongestHandshake(5000);  // then the host's next address is tried

/// The reason why a client does not reach its store. Its thread writes here, and may outlive the
/// wait for it.
class Obstacle {
 public:
  void set(const std::string& text) {
    const std::lock_guard lock(mutex_);
    text_ = text;
  }
  std::string text() const {
    const std::lock_guard lock(mutex_);
    return text_;
  }

 private:
  mutable std::mutex mutex_;
  std::string text_ = "the host name was not resolved in time";
};

/// The addresses of a host, or why there are none.
struct Addresses {
  std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)> list{nullptr, &::freeaddrinfo};
  int error = 0;
};

Addresses addresses_of(const std::string& host, int port) {
  addrinfo hints{};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  Addresses addresses;
  addresses.error = ::getaddrinfo(host.c_str(), std::to_string(port).c_str(), &hints, &found);
  if (addresses.error == 0) addresses.list.reset(found);
  return addresses;
}

// On one address, not on all interfaces; port 0 takes a free one.
FileDescriptor listen_on(const std::string& host, int port) {
  const Addresses addresses = addresses_of(host, port);
  check(
      addresses.error == 0, "listen: no address for ", host, ": ", ::gai_strerror(addresses.error));
  const std::string place = concat(host, ":", port);
  const addrinfo& address = *addresses.list;
  FileDescriptor socket(::socket(address.ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (!socket) throw_errno("open a socket for", place);
  const int yes = 1;
  ::setsockopt(socket.get(), SOL_SOCKET, SO_REUSEADDR, &yes, sizeof(yes));
  if (::bind(socket.get(), address.ai_addr, address.ai_addrlen) != 0) throw_errno("bind", place);
  if (::listen(socket.get(), 1024) != 0) throw_errno("listen on", place);
  return socket;
}

int port_of_socket(const FileDescriptor& socket) {
  sockaddr_storage address{};
  socklen_t length = sizeof(address);
  if (::getsockname(socket.get(), reinterpret_cast<sockaddr*>(&address), &length) != 0)
    throw_errno("getsockname");
  const bool is_ipv6 = address.ss_family == AF_INET6;
  return ntohs(is_ipv6 ? reinterpret_cast<sockaddr_in6&>(address).sin6_port
                       : reinterpret_cast<sockaddr_in&>(address).sin_port);
}

/// Returns why nobody listens at an address; 0 when somebody does.
int connection_error(const addrinfo& address) {
  const FileDescriptor socket(
      ::socket(address.ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!socket) return errno;
  if (::connect(socket.get(), address.ai_addr, address.ai_addrlen) == 0) return 0;
  if (errno != EINPROGRESS) return errno;
  pollfd waited{socket.get(), POLLOUT, 0};
  const int ready =
      retried([&] { return ::poll(&waited, 1, static_cast<int>(kLongestHandshake.count())); });
  if (ready == 0) return ETIMEDOUT;
  int error = 0;
  socklen_t size = sizeof(error);
  ::getsockopt(socket.get(), SOL_SOCKET, SO_ERROR, &error, &size);
  return error;
}

bool is_listening(const TcpStoreOptions& options, Obstacle& obstacle) {
  const Addresses addresses = addresses_of(options.host, options.port);
  if (addresses.error != 0) {
    obstacle.set(concat("no address for ", options.host, ": ", ::gai_strerror(addresses.error)));
    return false;
  }
  for (const addrinfo* each = addresses.list.get(); each != nullptr; each = each->ai_next) {
    const int error = connection_error(*each);
    if (error == 0) return true;
    obstacle.set(concat("rank 0 does not listen there: ", std::strerror(error)));
  }
  return false;
}

std::string name_for(const TcpStoreOptions& options) {
  return options.for_other_hosts ? reachable_name(options.host) : options.host;
}

c10d::TCPStoreOptions settings_of(const TcpStoreOptions& options) {
  c10d::TCPStoreOptions settings;
  settings.port = static_cast<std::uint16_t>(options.port);
  settings.isServer = options.serve;
  settings.waitWorkers = false;
  settings.timeout = options.timeout;
  return settings;
}

/// Waits until somebody listens, which costs nothing, and only then lets c10d connect: it would log
/// each try. Rank 0, or the name of its host, may appear later than we. Empty: the time was over.
Store connect(TcpStoreOptions options, Obstacle& obstacle) {
  const QuietLog quiet;  // here, for a thread that stays behind
  options.host = name_for(options);
  const auto end = Clock::now() + options.timeout;
  for (milliseconds pause = kFirstPause; !is_listening(options, obstacle);
       pause = std::min(2 * pause, kLongestPause)) {
    if (Clock::now() + pause > end) return {};
    std::this_thread::sleep_for(pause);
  }
  obstacle.set("what listens there does not answer as the store of rank 0");
  return c10::make_intrusive<c10d::TCPStore>(options.host, settings_of(options));
}

// The store would listen on every interface; it takes a socket that listens on one instead, and
// closes it, even when it throws.
Store serve(TcpStoreOptions options) {
  const QuietLog quiet;
  options.host = name_for(options);
  FileDescriptor socket = listen_on(options.host, options.port);
  c10d::TCPStoreOptions settings = settings_of(options);
  settings.port = static_cast<std::uint16_t>(port_of_socket(socket));
  settings.masterListenFd = socket.release();
  return c10::make_intrusive<c10d::TCPStore>(options.host, settings);
}

Store connect_or_serve(const TcpStoreOptions& options, const std::shared_ptr<Obstacle>& obstacle) {
  if (options.serve) return serve(options);
  const auto store =
      within(options.timeout, [options, obstacle] { return connect(options, *obstacle); });
  return store.value_or(Store());
}

}  // namespace

Store tcp_store(const TcpStoreOptions& options) {
  const auto obstacle = std::make_shared<Obstacle>();
  const std::string what = concat("store: no connection to ", options.host, ":", options.port);
  try {
    Store store = connect_or_serve(options, obstacle);
    if (store) return store;
  } catch (const c10::Error& error) {
    throw CommError(concat(what, ": ", first_line(error)));
  }
  throw TimeoutError(concat(what, " within ", options.timeout.count(), " ms: ", obstacle->text()));
}

int port_of(const Store& store) {
  const auto* tcp = dynamic_cast<const c10d::TCPStore*>(store.get());
  check(tcp != nullptr, "port_of: this store is not served over TCP");
  return tcp->getPort();
}

}  // namespace lockstep
