#include "lockstep/net/endpoint.h"

#include <arpa/inet.h>
#include <cstring>
#include <memory>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <system_error>

#include "lockstep/cluster/route.h"
#include "lockstep/core/error.h"
#include "lockstep/core/text.h"

namespace lockstep::net {
namespace {

using AddressList = std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)>;

constexpr int kSocketFlags = SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK;

/// The addresses of an endpoint, or why there are none.
struct Found {
  AddressList list{nullptr, &::freeaddrinfo};
  std::string obstacle;
};

Found addresses_of(const Endpoint& endpoint) {
  addrinfo hints{};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  check_loopback("rendezvous", endpoint.host);
  const std::string host = endpoint.is_of_one_host ? endpoint.host : reachable_name(endpoint.host);
  const int error =
      ::getaddrinfo(host.c_str(), std::to_string(endpoint.port).c_str(), &hints, &found);
  Found result;
  if (error == 0)
    result.list.reset(found);
  else
    result.obstacle = concat("no address for ", endpoint.host, ": ", ::gai_strerror(error));
  return result;
}

// With the scope of an address that needs one, as fe80::1%eth0 does.
std::string numeric(const sockaddr_storage& address) {
  char text[NI_MAXHOST] = {};
  ::getnameinfo(reinterpret_cast<const sockaddr*>(&address), sizeof(address), text, sizeof(text),
      nullptr, 0, NI_NUMERICHOST);
  return text;
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
    FileDescriptor socket = bound_to(*each);
    if (socket && ::listen(socket.get(), SOMAXCONN) == 0) return socket;
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
