#pragma once

#include <memory>
#include <string>
#include <vector>

#include "lockstep/comm/backend.h"
#include "lockstep/comm/gloo_backend.h"
#include "lockstep/comm/store.h"

namespace lockstep {

/// Makes a backend for ranks on several hosts: by shared memory within each host, by Gloo between
/// them. `hosts` has a text for each rank; ranks with the same one share a host. Where there is one
/// host, or no host with several ranks, it is the backend shm, or gloo.
///
/// A rank's collectives are carried out by a thread of the group in the order of the calls, so they
/// go on while the rank computes. The store must be the group's own. A collective; throws
/// MemoryNotShared in all ranks if those of a host cannot share memory, before there is a
/// connection.
std::shared_ptr<Backend> make_hierarchical_backend(const Store& store, int rank,
    const std::vector<std::string>& hosts, const GlooOptions& options = {});

}  // namespace lockstep
