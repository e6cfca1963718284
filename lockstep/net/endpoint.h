#pragma once

#include <chrono>
#include <optional>
#include <string>

#include "lockstep/core/file_descriptor.h"

namespace lockstep::net {

/// A host and a port.
struct Endpoint {
  std::string host;  ///< a name or an address; IPv6 without brackets
  int port = 0;

  /// Returns it as HOST:PORT, with brackets around an IPv6 address.
  std::string text() const;
};

/// Reads HOST, HOST:PORT or [IPV6]:PORT. Throws InvalidArgument that begins with `what`.
Endpoint parse_endpoint(const std::string& what, const std::string& text, int usual_port);

/// Says whether a host is this one alone to all who use the name: localhost, 127.x.y.z or ::1.
bool is_loopback(const std::string& host);

/// Listens at the endpoint's first address, and no other. Nothing if that is not an address of this
/// host or if somebody listens there already. Throws std::system_error for other errors, CommError
/// if the name has no address.
std::optional<FileDescriptor> listen_at(const Endpoint& endpoint);

/// Returns the port on which a socket is bound.
int port_of_socket(const FileDescriptor& socket);

/// Returns the numeric address at this end, or at the other, of a connection.
std::string own_address(const FileDescriptor& socket);
std::string peer_address(const FileDescriptor& socket);

/// A connection, or why there is none.
struct Connection {
  FileDescriptor socket;
  int error = 0;         ///< errno
  std::string obstacle;  ///< in words; empty: connected
};

/// Tries each address of the endpoint once, for so long in all. The socket does not block.
Connection connect_to(const Endpoint& endpoint, std::chrono::milliseconds patience);

}  // namespace lockstep::net
