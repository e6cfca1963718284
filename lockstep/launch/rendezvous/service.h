#pragma once

#include <chrono>
#include <optional>

#include "lockstep/core/file_descriptor.h"
#include "lockstep/launch/rendezvous/coordinator.h"
#include "lockstep/launch/rendezvous/world.h"
#include "lockstep/net/hmac.h"
#include "lockstep/net/server.h"

namespace lockstep::launch {

/// The rendezvous itself, in the launcher of the node that serves it; in all others nothing.
class Service {
 public:
  Service(WorldRules rules, std::chrono::milliseconds dead_after, const net::Key& key)
      : rules_(rules), dead_after_(dead_after), key_(key) {}

  /// Serves at this socket a world of nodes that are as `reference`, from now on, or where an
  /// earlier one has ended. Once.
  void begin(FileDescriptor listener, const NodeFacts& reference, const WorldPast& past = {});

  bool is_here() const { return server_.has_value(); }

  /// Ends it, with the last node's goodbye or a few seconds later.
  void say_goodbye();

 private:
  WorldRules rules_;
  std::chrono::milliseconds dead_after_;
  net::Key key_;
  std::optional<Coordinator> coordinator_;
  std::optional<net::Server> server_;
};

}  // namespace lockstep::launch
