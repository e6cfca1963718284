#include "lockstep/launch/rendezvous/service.h"

#include <utility>

#include "lockstep/launch/patience.h"
#include "lockstep/net/endpoint.h"

namespace lockstep::launch {

void Service::begin(FileDescriptor listener, const NodeFacts& reference,
    const std::string& endpoint, const WorldPast& past) {
  herald_.reset();
  server_.reset();
  coordinator_.emplace(rules_, reference, key_, dead_after_, past);
  server_.emplace(std::move(listener), *coordinator_);
  if (past.generation == 0 || past.origin.empty() || past.origin == endpoint) return;
  const net::ClientOptions origin{.endpoint = net::parse_endpoint("rendezvous", past.origin, 0),
      .hello = {.job = job_, .role = net::Role::kAgent},
      .key = key_,
      .timeout = patience::kToAskAgain,
      .gives_up = [] { return true; }};
  herald_.emplace(origin, [this, endpoint] { return coordinator_->whereabouts(endpoint); });
}

void Service::say_goodbye() {
  herald_.reset();
  if (server_) server_->stop(patience::kFarewell);
}

}  // namespace lockstep::launch
