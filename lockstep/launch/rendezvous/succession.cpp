#include "lockstep/launch/rendezvous/succession.h"

#include <utility>

#include "lockstep/core/error.h"
#include "lockstep/launch/patience.h"
#include "lockstep/net/endpoint.h"

namespace lockstep::launch {
namespace {

constexpr int kMostRefusals = 4;  // of one that listens as long as it lives

}  // namespace

// Note [Succession]
// In a world that may shrink, each node that does not serve listens at a port of its own, and every
// plan names these ports. When the connection to the node that serves ends, or that one is silent,
// a node goes through the list: the first that is itself begins to serve, the first that answers is
// followed. That is done at once, by the thread of the connection; the ranks are ended meanwhile,
// however long one needs to save, and the world starts again when those of all have ended. One that
// has not noticed the loss yet answers when it has: until then its kernel keeps the connection. One
// that stood still itself for so long takes no part: the others have gone on without it.
//
// A node at whose address the world was founded may be started again, and would found another. The
// one that serves asks there all the time, and who would found a world waits to be asked.
//
// Nodes that are cut off from each other may go on separately, unless MIN is more than half of MAX;
// a run's folder that they share lets one in.
Succession::Succession(Service& service, const RendezvousOptions& meeting,
    const net::ClientOptions& server, const NodeFacts& facts)
    : service_(service), meeting_(meeting), server_(server), facts_(facts) {}

void Succession::settle(const std::string& address, int port) {
  const std::lock_guard lock(mutex_);
  facts_.address = address;
  facts_.port = port;
  stand_by();
}

void Succession::stand_by() {
  if (facts_.serves || meeting_.least_nodes == meeting_.most_nodes) return;
  auto listener = net::listen_at({.host = facts_.address, .port = 0});
  if (!listener) return;
  standby_ = *std::move(listener);
  facts_.standby_port = net::port_of_socket(standby_);
}

void Succession::leave() {
  is_leaving_ = true;
  const std::lock_guard lock(mutex_);
  standby_ = FileDescriptor();
  facts_.standby_port = 0;
}

void Succession::note(const NodePlan& plan) {
  const std::lock_guard lock(mutex_);
  plan_ = plan;
}

void Succession::move_to(const std::string& endpoint) {
  const std::lock_guard lock(mutex_);
  is_moving_ = true;
  if (!endpoint.empty()) plan_.heirs = {endpoint};
}

std::optional<std::vector<std::string>> Succession::heirs_of_loss() {
  const std::lock_guard lock(mutex_);
  const bool are_enough = std::ssize(plan_.heirs) >= meeting_.least_nodes;
  const bool is_cut_off = facts_.serves || !are_enough;
  if (is_leaving_ || was_away_ || (is_cut_off && !is_moving_)) return std::nullopt;
  if (std::exchange(facts_.serves, false)) stand_by();  // it was told to move
  news_.push_back(concat(std::exchange(is_moving_, false) ? "the world moves on from "
                                                          : "lost the node that serves the "
                                                            "rendezvous, ",
      server_.endpoint.text()));
  return std::exchange(plan_.heirs, {});
}

std::optional<net::Client> Succession::next() {
  std::vector<std::string> heirs = heirs_of_loss().value_or(std::vector<std::string>());
  for (int tried = 0; !heirs.empty() && !is_leaving_; ++tried) {
    const std::string heir = heirs.front();
    heirs.erase(heirs.begin());
    {
      const std::lock_guard lock(mutex_);
      plan_.heirs = heirs;  // if that one is lost before it has made a plan
      server_.endpoint = net::parse_endpoint("rendezvous", heir, 0);
      const net::Endpoint own{.host = facts_.address, .port = facts_.standby_port};
      if (standby_ && heir == own.text()) serve(heir, heirs, tried);
    }
    if (auto client = connect(heir)) return client;
  }
  return std::nullopt;
}

std::optional<net::Client> Succession::connect(const std::string& heir) {
  net::ClientOptions options = server_;
  options.timeout = patience::for_an_heir(meeting_.dead_after);
  options.most_refusals = kMostRefusals;
  options.gives_up = [this] { return is_leaving_.load(); };
  try {
    return net::Client(options);
  } catch (const std::exception& error) {
    tell(concat("the next to serve, ", heir, ", cannot be reached: ", error.what()));
  }
  return std::nullopt;
}

void Succession::serve(const std::string& endpoint, std::vector<std::string> others, int tried) {
  facts_.serves = true;
  facts_.standby_port = 0;
  const int nodes = 1 + static_cast<int>(others.size());
  service_.begin(std::move(standby_), facts_, endpoint,
      {.generation = plan_.generation,
          .history = plan_.history,
          .nodes = nodes,
          .heirs = std::move(others),
          .regather = patience::to_regather(meeting_.dead_after, tried),
          .founder = plan_.founder,
          .origin = plan_.origin});
  news_.push_back(concat(
      "this node serves the rendezvous now; nodes that join need ", "--rdzv-endpoint ", endpoint));
}

void Succession::note_run(const std::string& run) {
  const std::lock_guard lock(mutex_);
  facts_.run = run;
}

NodeFacts Succession::facts() const {
  const std::lock_guard lock(mutex_);
  return facts_;
}

std::string Succession::endpoint() const {
  const std::lock_guard lock(mutex_);
  return server_.endpoint.text();
}

void Succession::tell(const std::string& text) {
  const std::lock_guard lock(mutex_);
  news_.push_back(text);
}

std::vector<std::string> Succession::take_news() {
  const std::lock_guard lock(mutex_);
  return std::exchange(news_, {});
}

}  // namespace lockstep::launch
