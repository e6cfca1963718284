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
  /// Whether other hosts do not use it. Else a name that stands for the loopback here alone, as
  /// that of a host for itself under Debian, is taken for the host's reachable_name().
  bool is_of_one_host = false;

  /// Returns it as HOST:PORT, with brackets around an IPv6 address.
  std::string text() const;
};

/// Reads HOST, HOST:PORT or [IPV6]:PORT. Throws InvalidArgument that begins with `what`.
Endpoint parse_endpoint(const std::string& what, const std::string& text, int usual_port);

/// Listens at the first address of the endpoint that this host has, and no other. Throws
/// std::system_error if it has none or somebody listens there, CommError if the name has no
/// address, InvalidArgument if the loopback is down.
FileDescriptor listen_on(const Endpoint& endpoint);

/// As listen_on(); nothing if the host has none of the addresses or somebody listens there.
std::optional<FileDescriptor> listen_at(const Endpoint& endpoint);

/// Returns the port on which a socket is bound.
int port_of_socket(const FileDescriptor& socket);

/// Returns the numeric address at this end, or at the other, of a connection.
std::string own_address(const FileDescriptor& socket);
std::string peer_address(const FileDescriptor& socket);

/// A connection, or why there is none.
struct Connection {
  FileDescriptor socket;
  int error = 0;         ///< errno; 0 also where the name has no address
  std::string obstacle;  ///< in words; empty: connected
};

/// Tries each address of the endpoint once, each for so long at most. The socket does not block.
/// Throws InvalidArgument if the endpoint is on the loopback, and that is down.
Connection connect_to(const Endpoint& endpoint, std::chrono::milliseconds patience);

}  // namespace lockstep::net
