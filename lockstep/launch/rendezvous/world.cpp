#include "lockstep/launch/rendezvous/world.h"

#include <algorithm>
#include <cstring>
#include <signal.h>

#include "lockstep/core/error.h"
#include "lockstep/net/hmac.h"

namespace lockstep::launch {

namespace {

std::int64_t random_number() {
  std::int64_t number = 0;
  const net::Key key = net::random_key();
  std::memcpy(&number, key.data(), sizeof(number));
  return number;
}

}  // namespace

World::World(const WorldRules& rules, NodeFacts reference, const WorldPast& past)
    : rules_(rules),
      reference_(std::move(reference)),
      generation_(past.generation),
      history_(past.history),
      awaited_(past.nodes),
      past_heirs_(past.heirs),
      regather_(past.regather),
      founder_(past.founder != 0 ? past.founder : random_number()),
      origin_(past.origin) {
  if (past.generation > 0) note_change({});
}

Directives World::join(NodeId node, const NodeFacts& facts, Time now, std::int64_t had) {
  if (!moved_to_.empty()) {
    order(node, {.kind = Order::Kind::kMove, .text = moved_to_});
    return taken();
  }
  if (phase_ == Phase::kOver && had > 0) {  // it was one of us
    order(node, {.kind = Order::Kind::kFinish, .code = final_code_, .text = "the run is over"});
    return taken();
  }
  const std::string differs =
      phase_ == Phase::kOver ? "the run is over" : difference(reference_, facts);
  if (!differs.empty()) {
    order(node, {.kind = Order::Kind::kRefuse, .text = differs});
    return taken();
  }
  const Node joining{.facts = facts, .had = had, .has_trained = had > 0};
  const std::string foreign = foreign_run(joining);
  if (!foreign.empty()) {
    order(node, {.kind = Order::Kind::kRefuse, .text = foreign});
    return taken();
  }
  if (!nodes_.try_emplace(node, joining).second) return taken();
  if (phase_ == Phase::kGathering) {
    // It may have been told of a generation of which the one that serves now never heard.
    generation_ = std::max(generation_, had);
    gather(now);
  } else if (phase_ == Phase::kRunning && may_grow()) {
    order_end(concat("host ", facts.host, " joins"), true);
    order(node, {.kind = Order::Kind::kWait,
                    .plan = plan_of_waiting(),
                    .text = "until the ranks of the others have saved and ended"});
  } else {
    order(node, {.kind = Order::Kind::kWait,
                    .plan = plan_of_waiting(),
                    .text = "as a spare; the world is full"});
  }
  return taken();
}

/// Says which other run a node has in its folder. Nodes that have trained here know which is this
/// one's; before the first generation nobody does, and the ranks refuse to begin.
std::string World::foreign_run(const Node& node) const {
  if (generation_ == 0 || node.has_trained || node.facts.run.empty()) return "";
  for (const auto& [id, other] : nodes_) {
    const std::string& ours = other.facts.run;
    if (!other.has_trained || ours.empty()) continue;
    if (ours == node.facts.run) return "";
    return concat("its output folder holds run ", node.facts.run, ", and that of host ",
        other.facts.host, " run ", ours, ", which goes on without it; move the folder away, or ",
        "start this node with the folder of that run");
  }
  return "";
}

void World::refuse_strangers() {
  std::erase_if(nodes_, [&](const auto& each) {
    const std::string foreign = foreign_run(each.second);
    if (foreign.empty()) return false;
    order(each.first, {.kind = Order::Kind::kRefuse, .text = foreign});
    return true;
  });
}

// Not once some have done their part: the others are about to.
bool World::may_grow() const {
  const auto has_ended = [](const auto& each) { return each.second.has_ended; };
  const auto is_busy = [](const auto& each) { return each.second.is_busy; };
  return std::none_of(nodes_.begin(), nodes_.end(), has_ended) &&
         std::count_if(nodes_.begin(), nodes_.end(), is_busy) < rules_.most_nodes;
}

bool World::anyone_is_busy() const {
  return std::any_of(nodes_.begin(), nodes_.end(),
      [](const auto& each) { return each.second.is_busy || each.second.had > 0; });
}

Directives World::fail(NodeId node, std::int64_t generation, const std::string& text) {
  const auto found = nodes_.find(node);
  const bool counts = generation == generation_ && found != nodes_.end() && found->second.is_busy;
  if (!counts || only_follows()) return taken();
  failed_.push_back(node);
  if (phase_ == Phase::kRunning) order_end(text, false, node);
  return taken();
}

// Where a generation ends for another reason, ranks that fail have only seen the others end.
bool World::only_follows() const { return phase_ == Phase::kEnding && failed_.empty(); }

Directives World::end(NodeId id, const NodeEnd& end, Time now) {
  const auto found = nodes_.find(id);
  if (found == nodes_.end()) return taken();
  Node& node = found->second;
  if (node.had > 0 && end.generation == node.had) {
    end_of_before(node, end, now);
    return end.signal ? leave(id, end.code, now) : taken();
  }
  if (!node.is_busy || end.generation != generation_) return taken();
  node.is_busy = false;
  if (phase_ == Phase::kOver) return taken();
  node.has_ended = true;
  node.end = end;
  node.facts.port = end.port;
  node.facts.run = end.run;
  const bool is_listed = std::find(failed_.begin(), failed_.end(), id) != failed_.end();
  if (end.failure && !is_listed && !only_follows()) failed_.push_back(id);
  if (phase_ == Phase::kRunning && end.signal) {
    order_end(concat("host ", node.facts.host, " was asked to stop"), true);
  } else if (phase_ == Phase::kRunning && end.failure) {
    order_end(concat("a rank of host ", node.facts.host, " failed"), false);
  }
  if (!anyone_is_busy()) {
    conclude(now);
  } else if (phase_ == Phase::kRunning) {
    call_hang();  // the others may wait for it
  }
  return taken();
}

/// Ranks that a node had under an earlier server have ended, because that was lost.
void World::end_of_before(Node& node, const NodeEnd& end, Time now) {
  node.had = 0;
  node.facts.port = end.port;
  node.facts.run = end.run;
  if (phase_ == Phase::kOver) return;
  if (end.step) note_change(end.step);
  if (end.signal) return;  // it leaves
  if (phase_ == Phase::kGathering)
    try_start(now);
  else
    proceed(now);
}

Directives World::leave(NodeId id, int code, Time now) {
  const auto found = nodes_.find(id);
  if (found == nodes_.end() || found->second.is_busy || phase_ == Phase::kOver) return taken();
  Node& node = found->second;
  node.end.code = code;
  node.end.signal = SIGTERM;
  if (phase_ == Phase::kGathering) {
    if (dismiss({id})) gather(now);
  } else if (!node.has_ended && !node.facts.serves) {  // a spare
    order(id, {.kind = Order::Kind::kFinish, .code = code});
    nodes_.erase(found);
    proceed(now);  // where the others waited for it alone
  } else {         // conclude() lets it go
    node.has_ended = true;
    if (phase_ == Phase::kRunning)
      order_end(concat("host ", node.facts.host, " was asked to stop"), true);
    proceed(now);
  }
  return taken();
}

Directives World::lose(NodeId id, Time now) {
  const auto found = nodes_.find(id);
  if (found == nodes_.end()) return taken();
  const Node lost = found->second;
  nodes_.erase(found);
  std::erase(failed_, id);
  if (phase_ == Phase::kOver) return taken();
  if (lost.is_busy) {
    lost_ = lost.facts.host;
    if (phase_ == Phase::kRunning) order_end(concat("host ", lost_, " was lost"), false);
  }
  if (phase_ == Phase::kGathering)
    gather(now);
  else
    proceed(now);
  return taken();
}

void World::proceed(Time now) {
  if (!anyone_is_busy()) conclude(now);
}

Directives World::move(std::int64_t founder, std::int64_t generation, const std::string& endpoint) {
  const bool is_older = generation_ > 0 && generation <= generation_;
  if (phase_ == Phase::kOver || !rules_.is_elastic() || founder == founder_ || is_older)
    return taken();
  moved_to_ = endpoint;
  phase_ = Phase::kOver;
  for (const auto& [id, node] : nodes_) order(id, {.kind = Order::Kind::kMove, .text = endpoint});
  return taken();
}

Directives World::on_time(Time now) {
  if (phase_ == Phase::kGathering) try_start(now);
  return taken();
}

std::optional<World::Time> World::due() const {
  if (phase_ != Phase::kGathering || !gathering_since_ || anyone_is_busy()) return std::nullopt;
  if (awaited_ > 0) return *gathering_since_ + regather_;
  if (pause_end_ > *gathering_since_) return pause_end_;
  return enough_since_ ? called_at() : *gathering_since_ + rules_.join_timeout;
}

void World::order(NodeId node, Order order) { out_.push_back({node, std::move(order)}); }

/// Has the ranks of all nodes ended, but for one that is about it.
void World::order_end(const std::string& why, bool gently, NodeId but) {
  phase_ = Phase::kEnding;
  for (const auto& [id, node] : nodes_) {
    if (!node.is_busy || id == but) continue;
    order(
        id, {.kind = Order::Kind::kEnd, .generation = generation_, .gently = gently, .text = why});
  }
}

}  // namespace lockstep::launch
