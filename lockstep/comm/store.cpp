#include "lockstep/comm/store.h"

#include <fcntl.h>
#include <filesystem>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <thread>
#include <unistd.h>

#include <torch/csrc/distributed/c10d/FileStore.hpp>
#include <torch/csrc/distributed/c10d/HashStore.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>

#include "lockstep/core/error.h"
#include "lockstep/core/file_descriptor.h"
#include "lockstep/core/stopwatch.h"
#include "lockstep/core/text.h"

namespace lockstep {
namespace {

std::vector<std::uint8_t> bytes_of(const std::string& text) { return {text.begin(), text.end()}; }

std::string key_of(const std::string& topic, int rank) { return concat(topic, "/", rank); }

std::string missing_ranks(const Store& store, const std::string& topic, int size) {
  std::vector<std::string> ranks;
  for (int rank = 0; rank < size; ++rank) {
    if (!store->check({key_of(topic, rank)})) ranks.push_back(std::to_string(rank));
  }
  return joined(ranks);
}

// LibTorch's messages go on with a page of backtrace.
std::string first_line(const std::exception& error) {
  const std::string text = error.what();
  return text.substr(0, text.find('\n'));
}

using Addresses = std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)>;

Addresses addresses_of(const std::string& host, int port) {
  addrinfo hints{};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  const int error = ::getaddrinfo(host.c_str(), std::to_string(port).c_str(), &hints, &found);
  check(error == 0, "listen: no address for ", host, ": ", ::gai_strerror(error));
  return {found, &::freeaddrinfo};
}

// On one address, not on all interfaces; port 0 takes a free one.
FileDescriptor listen_on(const std::string& host, int port) {
  const Addresses addresses = addresses_of(host, port);
  const std::string place = concat(host, ":", port);
  FileDescriptor socket(::socket(addresses->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (!socket) throw_errno("open a socket for", place);
  const int yes = 1;
  ::setsockopt(socket.get(), SOL_SOCKET, SO_REUSEADDR, &yes, sizeof(yes));
  if (::bind(socket.get(), addresses->ai_addr, addresses->ai_addrlen) != 0)
    throw_errno("bind", place);
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

/// Locks a folder from take() until it is destroyed. Any program may hold such a lock for long, so
/// it is tried for two seconds only.
class FolderLock {
 public:
  explicit FolderLock(std::string folder) : folder_(std::move(folder)) {}

 protected:
  void take() {
    descriptor_ = FileDescriptor(::open(folder_.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    if (!descriptor_) return;
    for (int turn = 0; turn < 2000 && ::flock(descriptor_.get(), LOCK_EX | LOCK_NB) != 0; ++turn)
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }

 private:
  std::string folder_;
  FileDescriptor descriptor_;
};

// FileStore's destructor counts in two steps who has left: of two that leave at once, neither may
// see that it is the last, and the file stays. The lock lets them leave one after the other; it is
// a base so that it outlives the store.
class MeetingFile final : private FolderLock, public c10d::FileStore {
 public:
  MeetingFile(const std::string& path, int users)
      : FolderLock(std::filesystem::path(path).parent_path()), FileStore(path, users) {}
  ~MeetingFile() override { take(); }
};

}  // namespace

Store memory_store() { return c10::make_intrusive<c10d::HashStore>(); }

Store file_store(const std::string& path, int users) {
  // c10d would wait for minutes for a folder that does not exist.
  const FileDescriptor file(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644));
  if (!file) throw_errno("store: open the file in which ranks meet", path);
  return c10::make_intrusive<MeetingFile>(path, users);
}

Store tcp_store(const TcpStoreOptions& options) {
  c10d::TCPStoreOptions settings;
  settings.port = static_cast<std::uint16_t>(options.port);
  settings.isServer = options.serve;
  settings.waitWorkers = false;
  settings.timeout = options.timeout;
  // The store would listen on every interface; it takes a socket that listens on one instead.
  FileDescriptor socket;
  if (options.serve) {
    socket = listen_on(options.host, options.port);
    settings.port = static_cast<std::uint16_t>(port_of_socket(socket));
    settings.masterListenFd = socket.get();
  }
  try {
    auto store = c10::make_intrusive<c10d::TCPStore>(options.host, settings);
    socket.release();
    return store;
  } catch (const std::exception& error) {
    throw CommError(concat(
        "store: no connection to ", options.host, ":", settings.port, ": ", first_line(error)));
  }
}

int port_of(const Store& store) {
  const auto* tcp = dynamic_cast<const c10d::TCPStore*>(store.get());
  check(tcp != nullptr, "port_of: this store is not served over TCP");
  return tcp->getPort();
}

// Polls instead of waiting in the store, whose message names a key but no rank.
std::vector<std::string> exchange_texts(const Store& store, const std::string& topic, int rank,
    int size, const std::string& text, std::chrono::milliseconds timeout) {
  const Stopwatch stopwatch;
  std::vector<std::string> keys;
  for (int other = 0; other < size; ++other) keys.push_back(key_of(topic, other));
  try {
    store->set(keys[static_cast<std::size_t>(rank)], bytes_of(text));
    while (!store->check(keys)) {
      if (stopwatch.seconds() * 1000 > static_cast<double>(timeout.count())) {
        throw TimeoutError(concat(topic, ": waited ", timeout.count(), " ms for rank ",
            missing_ranks(store, topic, size), " of ", size));
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
    }
    std::vector<std::string> texts;
    for (const std::string& key : keys) {
      const auto bytes = store->get(key);
      texts.emplace_back(bytes.begin(), bytes.end());
    }
    return texts;
  } catch (const Error&) {
    throw;
  } catch (const std::exception& error) {
    throw CommError(concat(topic, ": the store does not answer: ", first_line(error)));
  }
}

}  // namespace lockstep
