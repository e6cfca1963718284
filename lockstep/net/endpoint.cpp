#include "lockstep/net/endpoint.h"

#include <arpa/inet.h>
#include <cstring>
#include <ifaddrs.h>
#include <memory>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <random>
#include <set>
#include <sys/socket.h>
#include <system_error>
#include <thread>

#include "lockstep/core/error.h"
#include "lockstep/core/text.h"

namespace lockstep {
namespace {

constexpr const char* kOutside[] = {"192.0.2.1", "2001:db8::1"};  // of nobody: for documentation

using AddressList = std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)>;

/// The addresses of a host, or why there are none.
struct Found {
  AddressList list{nullptr, &::freeaddrinfo};
  std::string obstacle;
};

Found resolve(const std::string& host, int port, int socket_type, int flags = 0) {
  addrinfo hints{};
  hints.ai_flags = flags;
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = socket_type;
  addrinfo* found = nullptr;
  const int error = ::getaddrinfo(host.c_str(), std::to_string(port).c_str(), &hints, &found);
  Found result;
  if (error == 0)
    result.list.reset(found);
  else
    result.obstacle = ::gai_strerror(error);
  return result;
}

AddressList addresses_of(const std::string& host, int flags = 0) {
  return resolve(host, 9, SOCK_DGRAM, flags).list;
}

std::string numeric(const sockaddr* address, socklen_t size) {
  char text[NI_MAXHOST] = {};
  return ::getnameinfo(address, size, text, sizeof(text), nullptr, 0, NI_NUMERICHOST) == 0 ? text
                                                                                           : "";
}

bool is_loopback(const sockaddr* address) {
  if (address->sa_family == AF_INET) {
    const auto* ipv4 = reinterpret_cast<const sockaddr_in*>(address);
    return ntohl(ipv4->sin_addr.s_addr) >> 24 == IN_LOOPBACKNET;
  }
  if (address->sa_family != AF_INET6) return false;
  return IN6_IS_ADDR_LOOPBACK(&reinterpret_cast<const sockaddr_in6*>(address)->sin6_addr);
}

// To connect a datagram socket only chooses a route.
std::string source_towards(const addrinfo& address) {
  const FileDescriptor socket(::socket(address.ai_family, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  if (!socket || ::connect(socket.get(), address.ai_addr, address.ai_addrlen) != 0) return "";
  sockaddr_storage source{};
  socklen_t size = sizeof(source);
  auto* place = reinterpret_cast<sockaddr*>(&source);
  return ::getsockname(socket.get(), place, &size) == 0 ? numeric(place, size) : "";
}

// Calls with each address of each interface, and once more with each interface.
template <typename Visit>
void for_each_interface(Visit visit) {
  ifaddrs* found = nullptr;
  if (::getifaddrs(&found) != 0) return;
  const std::unique_ptr<ifaddrs, decltype(&::freeifaddrs)> list(found, &::freeifaddrs);
  for (const ifaddrs* each = found; each != nullptr; each = each->ifa_next) visit(*each);
}

bool has(const ifaddrs& interface, unsigned flag) { return (interface.ifa_flags & flag) != 0; }

int family_of(const ifaddrs& interface) {
  return interface.ifa_addr == nullptr ? AF_UNSPEC : interface.ifa_addr->sa_family;
}

std::string address_of_first_interface() {
  std::string address;
  for_each_interface([&](const ifaddrs& each) {
    const bool fits = has(each, IFF_UP) && !has(each, IFF_LOOPBACK) && family_of(each) == AF_INET;
    if (address.empty() && fits) address = numeric(each.ifa_addr, sizeof(sockaddr_in));
  });
  return address;
}

// Where nothing is known of interfaces, as in a sandbox, it is up.
bool loopback_is_down() {
  bool is_known = false, is_up = false;
  for_each_interface([&](const ifaddrs& each) {
    is_known |= has(each, IFF_LOOPBACK);
    is_up |= has(each, IFF_LOOPBACK) && has(each, IFF_UP);
  });
  return is_known && !is_up;
}

}  // namespace

bool names_loopback(const std::string& host) {
  const AddressList address = addresses_of(host, AI_NUMERICHOST);
  return host == "localhost" || (address && is_loopback(address->ai_addr));
}

void check_loopback(const std::string& what, const std::string& host) {
  check(!names_loopback(host) || !loopback_is_down(), what, ": ", host,
      " cannot be reached: the loopback interface of this host is down; ip link set lo up");
}

std::string obstacle_of_interface(const std::string& name) {
  std::set<std::string> usable;
  for_each_interface([&](const ifaddrs& each) {
    const int family = family_of(each);
    if (has(each, IFF_UP) && (family == AF_INET || family == AF_INET6))
      usable.insert(each.ifa_name);
  });
  if (usable.contains(name)) return "";
  const bool exists = ::if_nametoindex(name.c_str()) != 0;
  return concat(exists ? "is down, or has no address" : "is no network interface of this host",
      "; it can use ", joined({usable.begin(), usable.end()}));
}

std::string address_towards(const std::string& host) {
  const AddressList addresses = addresses_of(host);
  for (const addrinfo* each = addresses.get(); each != nullptr; each = each->ai_next) {
    const std::string source = source_towards(*each);
    if (!source.empty()) return source;
  }
  return "";
}

std::string address_outwards() {
  for (const char* outside : kOutside) {
    const std::string source = address_towards(outside);
    if (!source.empty()) return source;
  }
  return address_of_first_interface();
}

std::string reachable_name(const std::string& host) {
  if (names_loopback(host)) return host;
  const AddressList addresses = addresses_of(host);
  if (!addresses) return host;
  for (const addrinfo* each = addresses.get(); each != nullptr; each = each->ai_next)
    if (!is_loopback(each->ai_addr)) return host;
  const std::string own = address_outwards();
  return own.empty() ? host : own;
}

}  // namespace lockstep

namespace lockstep::net {
namespace {

constexpr int kSocketFlags = SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK;

Found addresses_of(const Endpoint& endpoint) {
  check_loopback("rendezvous", endpoint.host);
  const std::string host = endpoint.is_of_one_host ? endpoint.host : reachable_name(endpoint.host);
  Found found = resolve(host, endpoint.port, SOCK_STREAM);
  if (!found.list) found.obstacle = concat("no address for ", endpoint.host, ": ", found.obstacle);
  return found;
}

// With the scope of an address that needs one, as fe80::1%eth0 does.
std::string numeric(const sockaddr_storage& address) {
  return lockstep::numeric(reinterpret_cast<const sockaddr*>(&address), sizeof(address));
}

using NameOfSocket = int (*)(int, sockaddr*, socklen_t*);

sockaddr_storage address_by(NameOfSocket name, const FileDescriptor& socket) {
  sockaddr_storage address{};
  socklen_t size = sizeof(address);
  if (name(socket.get(), reinterpret_cast<sockaddr*>(&address), &size) != 0)
    throw_errno("net: read the address of a connection");
  return address;
}

int port_by(NameOfSocket name, const FileDescriptor& socket) {
  const sockaddr_storage address = address_by(name, socket);
  return ntohs(address.ss_family == AF_INET6
                   ? reinterpret_cast<const sockaddr_in6&>(address).sin6_port
                   : reinterpret_cast<const sockaddr_in&>(address).sin_port);
}

int error_of(const FileDescriptor& socket) {
  int error = 0;
  socklen_t size = sizeof(error);
  ::getsockopt(socket.get(), SOL_SOCKET, SO_ERROR, &error, &size);
  return error;
}

// Empty if it is none of this host, or taken; errno says which.
FileDescriptor bound_to(const addrinfo& address) {
  FileDescriptor socket(::socket(address.ai_family, kSocketFlags, 0));
  if (!socket) return socket;
  const int yes = 1;
  ::setsockopt(socket.get(), SOL_SOCKET, SO_REUSEADDR, &yes, sizeof(yes));
  if (::bind(socket.get(), address.ai_addr, address.ai_addrlen) == 0) return socket;
  const int error = errno;
  socket.reset();
  errno = error;
  return socket;
}

// Of two sockets that begin to listen at one address in the same moment, Linux may refuse both: it
// marks each as listening before it looks for others. So who was refused asks again, after a pause
// that differs between processes; where another does listen by then, the address cannot be bound.
FileDescriptor listening_at(const addrinfo& address) {
  constexpr int kMostRaces = 8;
  std::minstd_rand pauses{std::random_device()()};
  for (int races = 0;; ++races) {
    FileDescriptor socket = bound_to(address);
    if (!socket || ::listen(socket.get(), SOMAXCONN) == 0) return socket;
    const int error = errno;
    socket.reset();
    errno = error;
    if (error != EADDRINUSE || races == kMostRaces) return socket;
    std::this_thread::sleep_for(std::chrono::microseconds(pauses() % 2000));
  }
}

int connect_one(
    const FileDescriptor& socket, const addrinfo& address, std::chrono::milliseconds patience) {
  if (::connect(socket.get(), address.ai_addr, address.ai_addrlen) == 0) return 0;
  if (errno != EINPROGRESS) return errno;
  pollfd waited{socket.get(), POLLOUT, 0};
  const int ready = retried([&] { return ::poll(&waited, 1, static_cast<int>(patience.count())); });
  return ready == 0 ? ETIMEDOUT : error_of(socket);
}

// While nobody listens, a connection within a host may by chance become one with itself.
bool is_with_itself(const FileDescriptor& socket) {
  return own_address(socket) == peer_address(socket) &&
         port_of_socket(socket) == port_by(&::getpeername, socket);
}

// A message is sent whole, so there is nothing to wait for.
void send_at_once(const FileDescriptor& socket) {
  const int yes = 1;
  ::setsockopt(socket.get(), IPPROTO_TCP, TCP_NODELAY, &yes, sizeof(yes));
}

}  // namespace

std::string Endpoint::text() const {
  return host.find(':') == std::string::npos ? concat(host, ":", port)
                                             : concat("[", host, "]:", port);
}

Endpoint parse_endpoint(const std::string& what, const std::string& text, int usual_port) {
  const auto bracket = text.find(']');
  const bool bracketed = text.starts_with("[") && bracket != std::string::npos;
  const auto colon = text.find(':', bracketed ? bracket : 0);
  check(colon == text.rfind(':') || bracketed, what,
      " has an IPv6 address, which needs brackets: ", "[::1]:29400, not ", text);
  Endpoint endpoint{.host = text.substr(0, colon), .port = usual_port};
  if (bracketed) endpoint.host = text.substr(1, bracket - 1);
  if (colon != std::string::npos)
    endpoint.port = parse_number<int>(text.substr(colon + 1)).value_or(-1);
  check(!endpoint.host.empty(), what, " names no host: ", text);
  check(
      0 < endpoint.port && endpoint.port < 65536, what, " has no port between 1 and 65535: ", text);
  return endpoint;
}

FileDescriptor listen_on(const Endpoint& endpoint) {
  const Found found = addresses_of(endpoint);
  if (!found.list) throw CommError(concat("rendezvous: ", found.obstacle));
  int error = 0;
  for (const addrinfo* each = found.list.get(); each != nullptr; each = each->ai_next) {
    FileDescriptor socket = listening_at(*each);
    if (socket) return socket;
    error = errno;
    if (error != EADDRNOTAVAIL && error != EAFNOSUPPORT) break;
  }
  errno = error;
  throw_errno("rendezvous: listen at", endpoint.text());
}

std::optional<FileDescriptor> listen_at(const Endpoint& endpoint) {
  try {
    return listen_on(endpoint);
  } catch (const std::system_error& error) {
    const int code = error.code().value();
    if (code == EADDRINUSE || code == EADDRNOTAVAIL || code == EAFNOSUPPORT) return std::nullopt;
    throw;
  }
}

int port_of_socket(const FileDescriptor& socket) { return port_by(&::getsockname, socket); }

std::string own_address(const FileDescriptor& socket) {
  return numeric(address_by(&::getsockname, socket));
}

std::string peer_address(const FileDescriptor& socket) {
  return numeric(address_by(&::getpeername, socket));
}

ReservedPort::ReservedPort() : ReservedPort(0, INADDR_LOOPBACK) {}

ReservedPort::ReservedPort(int port) : ReservedPort(port, INADDR_ANY) {}

ReservedPort::ReservedPort(int port, std::uint32_t address) {
  sockaddr_in place{};
  place.sin_family = AF_INET;
  place.sin_addr.s_addr = htonl(address);
  place.sin_port = htons(static_cast<in_port_t>(port));
  addrinfo info{};
  info.ai_family = AF_INET;
  info.ai_addr = reinterpret_cast<sockaddr*>(&place);
  info.ai_addrlen = sizeof(place);
  socket_ = bound_to(info);
  if (!socket_) throw_errno("launch: take the master port", std::to_string(port));
  number_ = port_of_socket(socket_);
}

Connection connect_to(const Endpoint& endpoint, std::chrono::milliseconds patience) {
  const Found found = addresses_of(endpoint);
  if (!found.list) return {.socket = {}, .error = 0, .obstacle = found.obstacle};
  Connection result;
  for (const addrinfo* each = found.list.get(); each != nullptr; each = each->ai_next) {
    FileDescriptor socket(::socket(each->ai_family, kSocketFlags, 0));
    result.error = socket ? connect_one(socket, *each, patience) : errno;
    if (result.error == 0 && is_with_itself(socket)) result.error = ECONNREFUSED;
    if (result.error == 0) {
      send_at_once(socket);
      return {.socket = std::move(socket), .error = 0, .obstacle = ""};
    }
    result.obstacle = concat("nobody serves there: ", std::strerror(result.error));
  }
  return result;
}

}  // namespace lockstep::net
