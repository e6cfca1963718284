// How a world finds the node whose ranks keep all others waiting.

#include <algorithm>

#include "lockstep/core/error.h"
#include "lockstep/launch/rendezvous/world.h"

namespace lockstep::launch {
namespace {

/// Says whether a node's ranks have begun fewer collectives of some group than another's.
bool is_behind(const NodeWait& node, const NodeWait& other) {
  return std::any_of(node.begun.begin(), node.begun.end(), [&](const auto& each) {
    const auto found = other.begun.find(each.first);
    return found != other.begun.end() && each.second < found->second;
  });
}

}  // namespace

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
  return std::any_of(others.begin(), others.end(),
      [&](NodeId other) { return is_behind(*nodes_.at(node).wait, *nodes_.at(other).wait); });
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
