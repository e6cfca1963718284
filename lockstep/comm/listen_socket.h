#pragma once

#include <string>

#include "lockstep/core/file_descriptor.h"

namespace lockstep {

/// Listens for TCP connections on one address, not on all interfaces; port 0 takes a free one.
///
/// Throws std::system_error that names the address and port, InvalidArgument if the host has no
/// address.
FileDescriptor listen_on(const std::string& host, int port);

int port_of_socket(const FileDescriptor& socket);

}  // namespace lockstep
