#include "lockstep/comm/listen_socket.h"

#include <memory>

#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include "lockstep/core/error.h"

namespace lockstep {
namespace {

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

}  // namespace

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
  return ntohs(
      is_ipv6 ? reinterpret_cast<sockaddr_in6&>(address).sin6_port
              : reinterpret_cast<sockaddr_in&>(address).sin_port);
}

}  // namespace lockstep
