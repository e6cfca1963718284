#include "lockstep/launch/rendezvous/service.h"

#include <utility>

namespace lockstep::launch {
namespace {

constexpr std::chrono::seconds kFarewell(5);  // for the others to hear that the run is over

}  // namespace

void Service::begin(FileDescriptor listener, const NodeFacts& reference, const WorldPast& past) {
  coordinator_.emplace(rules_, reference, key_, dead_after_, past);
  server_.emplace(std::move(listener), *coordinator_);
}

void Service::say_goodbye() {
  if (server_) server_->stop(kFarewell);
}

}  // namespace lockstep::launch
