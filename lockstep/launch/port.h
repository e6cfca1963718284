#pragma once

#include "lockstep/core/file_descriptor.h"

namespace lockstep::launch {

/// A TCP port of this host that is given to no other program, but is free to listen on.
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
  FileDescriptor socket_;
  int number_ = 0;
};

}  // namespace lockstep::launch
