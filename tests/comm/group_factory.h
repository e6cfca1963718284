#pragma once

#include <functional>
#include <string>

#include "lockstep/comm/process_group.h"

namespace lockstep::testing {

/// Runs the body on every rank of a group of this backend; rethrows the first failure.
///
/// `threads` and `gloo` run the ranks as threads. `shm` forks one process a rank, for shared memory
/// between threads would prove nothing; a failure there arrives as a std::runtime_error with its
/// message.
void run_group(const std::string& backend, int size, const std::function<void(ProcessGroup)>& body);

}  // namespace lockstep::testing
