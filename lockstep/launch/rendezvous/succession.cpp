// What an agent does when the node that serves is lost: the next one serves, the others follow it.

#include <utility>

#include "lockstep/core/error.h"
#include "lockstep/launch/rendezvous/agent.h"
#include "lockstep/net/endpoint.h"

namespace lockstep::launch {
namespace {

constexpr int kTries = 4;  // of one that refuses: it listens as long as it lives

}  // namespace

// Note [Succession]
// In a world that may shrink, each node that does not serve listens at a port of its own, and every
// plan names these ports. When the connection to the node that serves ends, or that one is silent,
// a node ends its ranks and goes through the plan's list: the first that is itself begins to serve,
// the first that answers is followed. One that has not noticed the loss yet answers when it has:
// until then its kernel keeps the connection. One that stood still itself for so long takes no
// part: the others have gone on without it. Nodes that are cut off from each other may go on
// separately, unless MIN is more than half of MAX; a run's folder that they share lets one in.
void Agent::stand_by() {
  const RendezvousOptions& meeting = *options_.rendezvous;
  if (facts_.serves || meeting.least_nodes == meeting.most_nodes) return;
  auto listener = net::listen_at({.host = facts_.address, .port = 0});
  if (!listener) return;
  standby_ = *std::move(listener);
  facts_.standby_port = net::port_of_socket(standby_);
}

bool Agent::follow_heir() {
  const std::vector<std::string> heirs = std::exchange(plan_.heirs, {});
  const bool are_enough = std::ssize(heirs) >= options_.rendezvous->least_nodes;
  if (leaving_ || !are_enough || membership_.was_away()) return false;
  supervisor_.say(concat("lost the node that serves the rendezvous, ", server_.endpoint.text()));
  plan_.nodes = static_cast<int>(std::ssize(heirs));
  for (const std::string& heir : heirs) {
    if (try_heir(heir)) return true;
  }
  return false;
}

bool Agent::try_heir(const std::string& heir) {
  const RendezvousOptions& meeting = *options_.rendezvous;
  server_.endpoint = net::parse_endpoint("rendezvous", heir, 0);
  const net::Endpoint own{.host = facts_.address, .port = facts_.standby_port};
  if (standby_ && heir == own.text()) serve();
  net::ClientOptions options = server_;
  options.timeout = meeting.dead_after;
  options.gives_up = [this, tries = 0]() mutable {
    return ++tries >= kTries || (server_.gives_up && server_.gives_up());
  };
  try {
    membership_ = Membership(options, meeting.beat, meeting.dead_after);
  } catch (const Error& error) {
    supervisor_.say(concat("the next to serve, ", heir, ", cannot be reached: ", error.what()));
    return false;
  }
  join();
  return true;
}

void Agent::serve() {
  facts_.serves = true;
  facts_.standby_port = 0;
  const WorldPast past{.generation = generation_,
      .history = plan_.history,
      .step = last_.end.step,
      .nodes = plan_.nodes};
  service_.begin(std::move(standby_), facts_, past);
  supervisor_.say(concat("this node serves the rendezvous now; nodes that join need ",
      "--rdzv-endpoint ", server_.endpoint.text()));
}

}  // namespace lockstep::launch
