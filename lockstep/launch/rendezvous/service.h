#pragma once

#include <chrono>
#include <optional>
#include <string>

#include "lockstep/core/file_descriptor.h"
#include "lockstep/launch/rendezvous/coordinator.h"
#include "lockstep/launch/rendezvous/herald.h"
#include "lockstep/launch/rendezvous/world.h"
#include "lockstep/net/hmac.h"
#include "lockstep/net/server.h"

namespace lockstep::launch {

/// The rendezvous itself, in the launcher of the node that serves it; in all others nothing.
class Service {
 public:
  Service(
      WorldRules rules, std::chrono::milliseconds dead_after, const net::Key& key, std::string job)
      : rules_(rules), dead_after_(dead_after), key_(key), job_(std::move(job)) {}

  /// Serves at this socket, which is the endpoint's, a world of nodes that are as `reference`, from
  /// now on, or where an earlier one has ended. What it has served before is over.
  void begin(FileDescriptor listener, const NodeFacts& reference, const std::string& endpoint,
      const WorldPast& past);

  bool is_here() const { return server_.has_value(); }

  /// Ends it, with the last node's goodbye or a few seconds later.
  void say_goodbye();

 private:
  WorldRules rules_;
  std::chrono::milliseconds dead_after_;
  net::Key key_;
  std::string job_;
  std::optional<Coordinator> coordinator_;
  std::optional<net::Server> server_;
  std::optional<Herald> herald_;
};

}  // namespace lockstep::launch
