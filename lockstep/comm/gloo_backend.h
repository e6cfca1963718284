#pragma once

#include <chrono>
#include <memory>
#include <string>

#include "lockstep/comm/backend.h"
#include "lockstep/comm/store.h"

namespace lockstep {

/// The variable that names the network interface of Gloo's connections.
inline constexpr const char* kInterfaceVariable = "GLOO_SOCKET_IFNAME";

/// The network that Gloo's connections use; an interface named by the variable wins.
struct GlooOptions {
  std::string hostname;  ///< whose address to use; empty: that of this host's name
  std::chrono::milliseconds timeout = std::chrono::minutes(5);
  int threads = 1;  ///< collectives of one group that run at once
};

/// Makes a backend over TCP, between hosts or on one, by c10d's Gloo. The store must be the group's
/// own (see c10d::PrefixStore). Gloo's connections are neither encrypted nor authenticated: use it
/// in networks you trust. Throws InvalidArgument if the variable names an interface that cannot be
/// used, or the address is of a loopback that is down, CommError if ranks do not come.
std::shared_ptr<Backend> make_gloo_backend(
    const Store& store, int rank, int size, const GlooOptions& options = {});

}  // namespace lockstep
