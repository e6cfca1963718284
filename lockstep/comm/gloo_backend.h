#pragma once

#include <chrono>
#include <memory>
#include <string>

#include "lockstep/comm/backend.h"
#include "lockstep/comm/store.h"

namespace lockstep {

/// The network that Gloo's connections use; an interface named by GLOO_SOCKET_IFNAME wins.
struct GlooOptions {
  std::string hostname;  ///< whose address to use; empty: that of this host's name
  std::chrono::milliseconds timeout = std::chrono::minutes(5);
  int threads = 1;  ///< collectives of one group that run at once
};

/// Makes a backend over TCP, between hosts or on one, by c10d's Gloo. The store must be the group's
/// own (see c10d::PrefixStore). Gloo's connections are neither encrypted nor authenticated: use it
/// in networks you trust.
std::shared_ptr<Backend> make_gloo_backend(
    const Store& store, int rank, int size, const GlooOptions& options = {});

}  // namespace lockstep
