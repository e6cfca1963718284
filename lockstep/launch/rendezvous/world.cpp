#include "lockstep/launch/rendezvous/world.h"

#include <algorithm>
#include <cstring>
#include <signal.h>

#include "lockstep/core/error.h"
#include "lockstep/core/exit_code.h"
#include "lockstep/net/authentication.h"
#include "lockstep/net/endpoint.h"

namespace lockstep::launch {
namespace {

std::int64_t random_number() {
  std::int64_t number = 0;
  const net::Key key = net::random_key();
  std::memcpy(&number, key.data(), sizeof(number));
  return number;
}

constexpr int kPeersGone = static_cast<int>(ExitCode::kPeersLost);

double seconds_of(std::chrono::milliseconds time) {
  return static_cast<double>(time.count()) / 1000;
}

bool lost_its_peers(const NodeEnd& end) { return end.failure->result() == kPeersGone; }

}  // namespace

World::World(const WorldRules& rules, NodeFacts reference, const WorldPast& past)
    : rules_(rules),
      reference_(std::move(reference)),
      generation_(past.generation),
      history_(past.history),
      awaited_(past.nodes),
      past_successors_(past.successors),
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
  const Node joining{.facts = facts, .had = had};
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

/// Says which other run a node has in its folder. Nodes whose ranks have ended know which is this
/// one's, or that it has saved nothing so far. What they told when they joined may be of a run that
/// this one overwrites; before the first generation the ranks refuse to begin.
std::string World::foreign_run(const Node& node) const {
  const std::string& theirs = node.facts.run;
  if (generation_ == 0 || node.has_trained || node.had > 0 || theirs.empty()) return "";
  std::string ours;
  bool has_trained = false;
  for (const auto& [id, other] : nodes_) {
    has_trained = has_trained || other.has_trained;
    if (other.has_trained && ours.empty()) ours = other.facts.run;
  }
  const bool is_known = !ours.empty() || (has_trained && !anyone_is_busy());
  if (!is_known || ours == theirs) return "";
  return concat("its output folder holds run ", theirs, ", and the run that goes on without it ",
      ours.empty() ? "has saved nothing so far" : concat("is ", ours),
      "; move the folder away, or start this node with the folder of that run");
}

/// Returns whether there were any.
bool World::refuse_foreign_runs() {
  return std::erase_if(nodes_, [&](const auto& each) {
    const std::string foreign = foreign_run(each.second);
    if (!foreign.empty()) order(each.first, {.kind = Order::Kind::kRefuse, .text = foreign});
    return !foreign.empty();
  }) > 0;
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
  node.has_trained = true;
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
  node.has_trained = true;
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

// How a world goes from one generation to the next, or to its end.

/// Decides what follows when all ranks of a generation have ended. The exit codes of ranks that
/// were ordered to end mean nothing.
void World::conclude(Time now) {
  refuse_foreign_runs();  // else one that only waited would be told that its run ended well
  AttemptEnd end = sum_up();
  end.seconds = std::chrono::duration<double>(now - started_).count();
  const bool is_done = phase_ == Phase::kRunning && failed_.empty() && lost_.empty();
  const bool has_failed = !failed_.empty() && lost_.empty();
  std::vector<NodeId> leaving;
  for (const auto& [id, node] : nodes_)
    if (node.has_ended && node.end.signal) leaving.push_back(id);
  const std::string lost = std::exchange(lost_, "");
  failed_.clear();
  if (is_done && leaving.empty()) return finish(end.code, "");
  if (!dismiss(leaving)) return;
  for (auto& [id, node] : nodes_) node.has_ended = false;
  if (has_failed && leaving.empty()) return decide(end, now);
  note_change(end.step);
  if (lost.empty() || may_replace(lost)) gather(now);
}

/// A generation has ended because nodes came or went, which is no failure of its own, nor does it
/// belong to a row of them.
void World::note_change(std::optional<std::int64_t> step) {
  const AttemptEnd change{.code = kPeersGone, .failure = {}, .signal = {}, .step = step};
  const int loops = history_.loops;
  history_ = next_attempt(rules_.restarts, history_, change).history;
  history_.loops = loops;
}

/// The node whose failure the others only followed.
const World::Node* World::cause() const {
  const Node* first = nullptr;
  for (const NodeId id : failed_) {
    const Node& node = nodes_.at(id);
    if (!node.end.failure) continue;
    if (!lost_its_peers(node.end)) return &node;
    if (first == nullptr) first = &node;
  }
  return first;
}

AttemptEnd World::sum_up() const {
  AttemptEnd sum;
  for (const auto& [id, node] : nodes_) {
    if (!node.has_ended) continue;
    sum.step = std::max(sum.step, node.end.step);
    if (sum.code == 0) sum.code = node.end.code;
  }
  if (const Node* const node = cause()) {
    sum.code = node->end.code;
    sum.failure = node->end.failure;
  }
  return sum;
}

/// Lets nodes go that were asked to stop. Returns whether the others go on here: not if they are
/// too few, nor without the one that serves, whose place the next takes if it can.
bool World::dismiss(const std::vector<NodeId>& leaving) {
  if (leaving.empty()) return true;
  Node last;
  bool serves = false;
  for (const NodeId id : leaving) {
    last = nodes_.at(id);
    serves = serves || last.facts.serves;
    order(id, {.kind = Order::Kind::kFinish, .code = last.end.code});
    nodes_.erase(id);
  }
  const bool is_short = generation_ > 0 && within_reach() < rules_.least_nodes;
  if (!serves && !is_short) return true;
  if (!is_short && has_successors() && !successors().empty()) {
    hand_over();
    return false;
  }
  finish(last.end.code, concat("host ", last.facts.host, " was asked to stop, and ",
                            is_short ? "too few are left" : "it serves the rendezvous"));
  return false;
}

/// A node that is asked to stop is no worse for the others than one that dies.
void World::hand_over() {
  phase_ = Phase::kOver;
  moved_to_ = successors().front();  // also for those who come to us now
  for (const auto& [id, node] : nodes_) order(id, {.kind = Order::Kind::kMove});
}

/// Counts those who are here, and those of an earlier server who may yet come.
int World::within_reach() const {
  return awaited_ > 0 ? std::max(count(), static_cast<int>(successors().size())) : count();
}

/// A world of a fixed size counts the loss of a node as a restart: it was no wish to shrink.
bool World::may_replace(const std::string& lost) {
  if (rules_.is_elastic()) return true;
  if (history_.restarts < rules_.restarts.most) {
    ++history_.restarts;
    return true;
  }
  finish(kPeersGone,
      concat("host ", lost, " was lost; restarts used up: --max-restarts ", rules_.restarts.most));
  return false;
}

void World::decide(const AttemptEnd& end, Time now) {
  const NextAttempt next = next_attempt(rules_.restarts, history_, end);
  history_ = next.history;
  if (!next.starts) return finish(next.code, next.reason);
  pause_end_ = now + next.pause;
  gather(now);
}

void World::gather(Time now) {
  if (phase_ != Phase::kGathering) gathering_since_.reset();
  phase_ = Phase::kGathering;
  if (!gathering_since_) gathering_since_ = now;
  if (count() < rules_.least_nodes) {
    enough_since_.reset();
  } else if (!enough_since_) {
    enough_since_ = now;
  }
  try_start(now);
  if (phase_ != Phase::kGathering) return;
  const std::string wanted = rules_.is_elastic()
                                 ? concat(rules_.least_nodes, " to ", rules_.most_nodes)
                                 : std::to_string(rules_.most_nodes);
  const std::string text =
      now < pause_end_
          ? concat("attempts fail soon after their start; again in ",
                seconds_of(std::chrono::duration_cast<std::chrono::milliseconds>(pause_end_ - now)),
                " s")
          : concat(count(), " of ", wanted, " nodes are here",
                awaits_its_nodes(now) ? "; others of before may still come" : "");
  for (const auto& [id, node] : nodes_)
    order(id, {.kind = Order::Kind::kWait, .plan = plan_of_waiting(), .text = text});
}

// Nodes that are new do not count: those of before may have ranks that are still saving, the node
// that serves now first of all, which may be the last to join. So it is waited for all of them,
// also where as many as may be are here: one that was only a spare may have gone unnoticed.
bool World::awaits_its_nodes(Time now) const {
  const auto has_come_back = [this](const auto& each) {
    const NodeFacts& facts = each.second.facts;
    return facts.serves || std::find(past_successors_.begin(), past_successors_.end(),
                               facts.standby()) != past_successors_.end();
  };
  return std::count_if(nodes_.begin(), nodes_.end(), has_come_back) < awaited_ &&
         gathering_since_ && now < *gathering_since_ + regather_;
}

// There is a last call only before the first generation: later, a node that joins makes the world
// grow.
bool World::is_called(Time now) const {
  if (generation_ > 0) return !awaits_its_nodes(now);
  return enough_since_ && now >= called_at();
}

World::Time World::called_at() const {
  const auto listens = rules_.is_elastic() ? rules_.to_found : std::chrono::milliseconds(0);
  return std::max(*enough_since_ + rules_.last_call, *gathering_since_ + listens);
}

void World::try_start(Time now) {
  if (now < pause_end_ || anyone_is_busy()) return;
  if (refuse_foreign_runs()) return gather(now);
  pause_end_ = {};
  const bool is_full = count() >= rules_.most_nodes && !awaits_its_nodes(now);
  if (is_full || (enough_since_ && is_called(now))) return start(now);
  if (enough_since_ || !gathering_since_) return;
  const auto patience = awaited_ > 0 ? regather_ : rules_.join_timeout;
  if (now < *gathering_since_ + patience) return;
  finish(kPeersGone, concat("only ", count(), " of at least ", rules_.least_nodes,
                         " nodes came within ", seconds_of(patience), " s"));
}

/// Those of the last generation keep their numbers where they can; the others fill the gaps.
std::vector<NodeId> World::chosen() const {
  std::vector<NodeId> order;
  for (const auto& [id, node] : nodes_) order.push_back(id);
  std::stable_sort(order.begin(), order.end(),
      [this](NodeId a, NodeId b) { return nodes_.at(a).rank >= 0 && nodes_.at(b).rank < 0; });
  order.resize(std::min(order.size(), static_cast<std::size_t>(rules_.most_nodes)));
  std::vector<NodeId> places(order.size(), 0);
  std::vector<NodeId> others;
  for (const NodeId id : order) {
    const auto rank = static_cast<std::size_t>(nodes_.at(id).rank);  // huge without one
    if (rank < places.size())
      places[rank] = id;
    else
      others.push_back(id);
  }
  for (NodeId& place : places) {
    if (place != 0) continue;
    place = others.front();
    others.erase(others.begin());
  }
  return places;
}

/// Returns the nodes that would serve next, in an order that stays the same as nodes come and go:
/// all that notice the loss of the server must go to the same successor, whichever plan they had
/// last.
std::vector<std::string> World::successors() const {
  std::vector<std::string> here;
  for (const auto& [id, node] : nodes_) {
    const NodeFacts& facts = node.facts;
    if (facts.serves || facts.standby_port == 0) continue;
    here.push_back(facts.standby());
  }
  const auto has = [](const std::vector<std::string>& all, const std::string& one) {
    return std::find(all.begin(), all.end(), one) != all.end();
  };
  std::vector<std::string> successors;
  for (const std::string& successor : past_successors_)
    if (awaited_ > 0 || has(here, successor)) successors.push_back(successor);
  for (const std::string& successor : here)
    if (!has(past_successors_, successor)) successors.push_back(successor);
  return successors;
}

/// Returns what a waiting node needs if the serving node is lost.
NodePlan World::plan_of_waiting() const {
  NodePlan plan;
  plan.generation = generation_;
  plan.nodes = std::max(1, count());
  plan.successors = successors();
  plan.history = history_;
  plan.founder = founder_;
  plan.origin = origin_;
  return plan;
}

void World::start(Time now) {
  started_ = now;
  const std::vector<NodeId> places = chosen();
  awaited_ = 0;
  NodePlan plan = plan_of_waiting();
  plan.nodes = static_cast<int>(places.size());
  plan.world_size = 0;
  for (const NodeId id : places) plan.world_size += nodes_.at(id).facts.workers;
  const Node& first = nodes_.at(places.front());
  plan.master_address = first.facts.address;
  plan.master_port = first.facts.port;
  plan.restart = static_cast<int>(generation_);
  plan.max_restarts = rules_.restarts.most + plan.restart - history_.restarts;
  plan.generation = ++generation_;
  phase_ = Phase::kRunning;
  gathering_since_.reset();
  enough_since_.reset();
  for (auto& [id, node] : nodes_) {
    node.rank = -1;
    node.wait.reset();
  }
  for (const NodeId id : places) {
    Node& node = nodes_.at(id);
    node.rank = plan.node_rank;
    node.is_busy = true;
    order(id, {.kind = Order::Kind::kStart, .plan = plan});
    ++plan.node_rank;
    plan.first_rank += node.facts.workers;
  }
  for (const auto& [id, node] : nodes_)
    if (!node.is_busy)
      order(id, {.kind = Order::Kind::kWait,
                    .plan = plan_of_waiting(),
                    .text = "as a spare; the world is full"});
}

Directives World::give_up(const std::string& why) {
  if (phase_ == Phase::kOver) return taken();
  order_end(why, false);
  finish(kPeersGone, why);
  return taken();
}

void World::finish(int code, const std::string& why) {
  phase_ = Phase::kOver;
  final_code_ = code;
  for (const auto& [id, node] : nodes_)
    order(id, {.kind = Order::Kind::kFinish, .code = code, .text = why});
}

// How a world finds the node whose ranks keep all others waiting.

Directives World::wait(NodeId id, std::int64_t generation, const std::optional<NodeWait>& wait) {
  const auto found = nodes_.find(id);
  if (found == nodes_.end() || !found->second.is_busy || !is_running(generation)) return taken();
  found->second.wait = wait;
  call_hang();
  return taken();
}

/// Has a node call it a hang once the ranks of all only wait, each in a call that others have to
/// join. While one node says nothing of the kind, its ranks make progress, or it has called it.
/// Where all ranks of the world are in step, it is the network that is slow.
void World::call_hang() {
  std::vector<NodeId> waiting;
  bool are_all_there = true;
  for (const auto& [id, node] : nodes_) {
    are_all_there = are_all_there && !node.has_ended;
    if (!node.is_busy) continue;
    if (!node.wait) return;
    waiting.push_back(id);
  }
  if (waiting.empty() || (are_all_there && are_in_step(waiting))) return;
  std::sort(waiting.begin(), waiting.end(),
      [this](NodeId a, NodeId b) { return nodes_.at(a).rank < nodes_.at(b).rank; });
  const NodeId behind = node_behind(waiting);
  std::string others;
  for (const NodeId id : waiting) {
    const Node& node = nodes_.at(id);
    if (id != behind && others.empty() && !node.wait->text.empty())
      others = concat("on host ", node.facts.host, " ", node.wait->text);
  }
  order(behind, {.kind = Order::Kind::kHang, .generation = generation_, .text = others});
}

bool World::is_behind_any(NodeId node, const std::vector<NodeId>& others) const {
  return std::any_of(others.begin(), others.end(), [&](NodeId other) {
    return is_behind(nodes_.at(node).wait->begun, nodes_.at(other).wait->begun);
  });
}

bool World::are_in_step(const std::vector<NodeId>& waiting) const {
  return std::all_of(waiting.begin(), waiting.end(),
      [&](NodeId id) { return nodes_.at(id).wait->in_step && !is_behind_any(id, waiting); });
}

/// Returns the first node that is behind another; if none is, the first.
NodeId World::node_behind(const std::vector<NodeId>& waiting) const {
  const auto found = std::find_if(
      waiting.begin(), waiting.end(), [&](NodeId id) { return is_behind_any(id, waiting); });
  return found == waiting.end() ? waiting.front() : *found;
}

}  // namespace lockstep::launch
