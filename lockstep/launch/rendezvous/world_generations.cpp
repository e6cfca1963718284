// How a world goes from one generation to the next, or to its end.

#include <algorithm>

#include "lockstep/core/error.h"
#include "lockstep/core/exit_code.h"
#include "lockstep/launch/rendezvous/world.h"
#include "lockstep/net/endpoint.h"

namespace lockstep::launch {
namespace {

constexpr int kPeersGone = static_cast<int>(ExitCode::kPeersLost);

double seconds_of(std::chrono::milliseconds time) {
  return static_cast<double>(time.count()) / 1000;
}

bool lost_its_peers(const NodeEnd& end) { return end.failure->result() == kPeersGone; }

}  // namespace

/// Decides what follows when all ranks of a generation have ended. Whoever was ordered to end says
/// nothing by its code.
void World::conclude(Time now) {
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
  if (!is_short && has_heirs() && !heirs().empty()) {
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
  moved_to_ = heirs().front();  // also for those who come to us now
  for (const auto& [id, node] : nodes_) order(id, {.kind = Order::Kind::kMove});
}

/// Counts those who are here, and those of an earlier server who may yet come.
int World::within_reach() const {
  return awaited_ > 0 ? std::max(count(), static_cast<int>(heirs().size())) : count();
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
  refuse_strangers();
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
          : concat(count(), " of ", wanted, " nodes are here");
  for (const auto& [id, node] : nodes_)
    order(id, {.kind = Order::Kind::kWait, .plan = plan_of_waiting(), .text = text});
}

bool World::awaits_its_nodes(Time now) const {
  return count() < awaited_ && gathering_since_ && now < *gathering_since_ + regather_;
}

// Only the first time is there a last call: later, one who comes makes the world grow.
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
  pause_end_ = {};
  if (count() >= rules_.most_nodes || (enough_since_ && is_called(now))) return start(now);
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

/// Returns who would serve next, in an order that stays as nodes come and go: those who hear of a
/// loss must go to the same one, whatever they were told last.
std::vector<std::string> World::heirs() const {
  std::vector<std::string> here;
  for (const auto& [id, node] : nodes_) {
    const NodeFacts& facts = node.facts;
    if (facts.serves || facts.standby_port == 0) continue;
    here.push_back(net::Endpoint{.host = facts.address, .port = facts.standby_port}.text());
  }
  const auto has = [](const std::vector<std::string>& all, const std::string& one) {
    return std::find(all.begin(), all.end(), one) != all.end();
  };
  std::vector<std::string> heirs;
  for (const std::string& heir : past_heirs_)
    if (awaited_ > 0 || has(here, heir)) heirs.push_back(heir);
  for (const std::string& heir : here)
    if (!has(past_heirs_, heir)) heirs.push_back(heir);
  return heirs;
}

/// Returns what one who waits has to know in case that the node that serves is lost.
NodePlan World::plan_of_waiting() const {
  NodePlan plan{.generation = generation_, .nodes = std::max(1, count())};
  plan.heirs = heirs();
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
    node.is_busy = node.has_trained = true;
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

}  // namespace lockstep::launch
