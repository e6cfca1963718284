#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>

#include "lockstep/core/file_descriptor.h"

namespace lockstep {

/// Returns whether a host is the loopback: `localhost`, 127.x.y.z, ::1.
bool names_loopback(const std::string& host);

/// Throws InvalidArgument that begins with `what` if the host is the loopback, and that is down.
void check_loopback(const std::string& what, const std::string& host);

/// Returns why connections cannot use the network interface of that name, after which its name can
/// stand, and which they can; empty if they can.
std::string obstacle_of_interface(const std::string& name);

/// Returns the numeric address from which this host sends to another, by the route to it: the one
/// of the right interface, by which the other can answer. Nothing is sent. Empty if the name has no
/// address, or there is no way there.
std::string address_towards(const std::string& host);

/// Returns the address from which this host sends to hosts outside: by the default route, or else
/// that of its first interface. Empty without any.
std::string address_outwards();

/// Returns how all hosts of a run reach a host of it. That is its name, except on the host itself
/// where its own /etc/hosts gives the name an address of the loopback, as Debian does (127.0.1.1):
/// there it is address_outwards().
std::string reachable_name(const std::string& host);

}  // namespace lockstep

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

/// Listens at the first address of the endpoint that this host has. Throws
/// std::system_error if it has none or the port is taken, CommError if the name has no
/// address, InvalidArgument if the loopback is down.
FileDescriptor listen_on(const Endpoint& endpoint);

/// As listen_on(); nothing if the host has none of the addresses or the port is taken.
std::optional<FileDescriptor> listen_at(const Endpoint& endpoint);

/// Returns the port to which a socket is bound.
int port_of_socket(const FileDescriptor& socket);

/// Returns the numeric address at this end, or at the other, of a connection.
std::string own_address(const FileDescriptor& socket);
std::string peer_address(const FileDescriptor& socket);

/// A TCP port of this host that no other program is given, but that is free to listen on.
///
/// The socket is bound with SO_REUSEADDR and never listens: a program that sets SO_REUSEADDR too
/// (our store, c10d's TCPStore) can bind the port and listen there meanwhile, but the kernel does
/// not choose it for programs that ask for any port.
class ReservedPort {
 public:
  /// Takes any free port of the loopback address.
  ReservedPort();

  /// Takes this port, or any free one for 0, on all addresses. Throws std::system_error that names
  /// it when a program listens there.
  explicit ReservedPort(int port);

  int number() const { return number_; }

 private:
  ReservedPort(int port, std::uint32_t address);

  FileDescriptor socket_;
  int number_ = 0;
};

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
