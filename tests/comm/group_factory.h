#pragma once

#include <functional>
#include <string>
#include <vector>

#include "lockstep/comm/process_group.h"

namespace lockstep::testing {

/// Runs the body on every rank of a group of this backend; rethrows the first failure.
///
/// `threads` runs the ranks as threads. `shm` and `gloo` fork one process a rank: shared memory
/// between threads would prove nothing, and LibTorch 2.11 cannot have several Gloo groups in one
/// process (its flight recorder is not safe between threads). A failure there arrives as a
/// std::runtime_error with its message. `hosts_0011` is the hierarchical backend of ranks 0 and 1
/// on one host and 2 and 3 on another, all of which are this one.
void run_group(const std::string& backend, int size, const std::function<void(ProcessGroup)>& body);

/// Returns the backends that a whole suite is to be run over.
std::vector<std::string> backends_to_test();

/// As lockstep::run_ranks(), but the backend that LOCKSTEP_TEST_BACKEND names connects the threads:
/// `threads` (without it), `shm` or `gloo`. So ctest runs one suite over every backend.
void run_ranks(int size, const std::function<void(ProcessGroup)>& body);

/// Returns what the other ranks of run_ranks() read when one gives up for this reason: over Gloo
/// they only see that the connection is closed.
std::string as_heard(const std::string& reason);

}  // namespace lockstep::testing
