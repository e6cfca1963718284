#include "lockstep/launch/port.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include "lockstep/core/error.h"

namespace lockstep::launch {
namespace {

FileDescriptor bind_without_listening(in_addr_t address, int port) {
  FileDescriptor holder(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (!holder) throw_errno("launch: open a socket");
  const int yes = 1;
  ::setsockopt(holder.get(), SOL_SOCKET, SO_REUSEADDR, &yes, sizeof(yes));
  sockaddr_in place{};
  place.sin_family = AF_INET;
  place.sin_addr.s_addr = htonl(address);
  place.sin_port = htons(static_cast<in_port_t>(port));
  if (::bind(holder.get(), reinterpret_cast<sockaddr*>(&place), sizeof(place)) != 0) {
    throw_errno("launch: take the master port", std::to_string(port));
  }
  return holder;
}

int bound_port(const FileDescriptor& holder) {
  sockaddr_in place{};
  socklen_t size = sizeof(place);
  if (::getsockname(holder.get(), reinterpret_cast<sockaddr*>(&place), &size) != 0) {
    throw_errno("launch: read the master port");
  }
  return ntohs(place.sin_port);
}

}  // namespace

ReservedPort::ReservedPort()
    : socket_(bind_without_listening(INADDR_LOOPBACK, 0)), number_(bound_port(socket_)) {}

ReservedPort::ReservedPort(int port)
    : socket_(bind_without_listening(INADDR_ANY, port)), number_(bound_port(socket_)) {}

}  // namespace lockstep::launch
