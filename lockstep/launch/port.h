#pragma once

#include "lockstep/core/file_descriptor.h"

namespace lockstep::launch {

/// Holds a TCP port of this host so that nobody else is handed it, and leaves it free to listen on.
///
/// The socket is bound with SO_REUSEADDR and never listens: whoever sets SO_REUSEADDR too (our
/// store, c10d's TCPStore) can bind the port and listen there as long as this lives, while the
/// kernel gives it to nobody who asks for any port.
class ReservedPort {
 public:
  /// Takes any free port of the loopback address.
  ReservedPort();

  /// Takes this port, on all addresses. Throws std::system_error that names it when somebody
  /// listens there.
  explicit ReservedPort(int port);

  int number() const { return number_; }

 private:
  FileDescriptor socket_;
  int number_ = 0;
};

}  // namespace lockstep::launch
