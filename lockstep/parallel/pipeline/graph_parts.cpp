#include "lockstep/parallel/pipeline/graph_parts.h"

#include <unordered_map>

namespace lockstep {
namespace {

using torch::autograd::Node;

// A leaf's own node ends the graph.
bool is_leaf(const Node& node) { return node.num_outputs() == 0; }

// The nodes below the roots, each after all that lie below it.
std::vector<Node*> from_the_leaves_up(const std::vector<Node*>& roots) {
  std::vector<Node*> order;
  std::unordered_set<Node*> seen;
  std::vector<std::pair<Node*, std::size_t>> stack;
  const auto enter = [&](Node* node) {
    if (node != nullptr && seen.insert(node).second) stack.emplace_back(node, 0);
  };
  for (Node* root : roots) {
    enter(root);
    while (!stack.empty()) {
      auto& [node, next] = stack.back();
      if (next < node->next_edges().size()) {
        enter(node->next_edge(next++).function.get());
      } else {
        order.push_back(node);
        stack.pop_back();
      }
    }
  }
  return order;
}

// What a node knows of the parameters below it that are not yet a boundary node's.
struct Below {
  bool input = false;
  std::vector<Node*> parameters;
};

}  // namespace

GraphParts::GraphParts(const std::vector<Node*>& roots, const std::unordered_set<Node*>& inputs) {
  std::unordered_map<Node*, Below> below;
  std::unordered_set<Node*> taken;
  for (Node* node : from_the_leaves_up(roots)) {
    Below& own = below[node];
    if (is_leaf(*node)) {
      own.input = inputs.contains(node);
      if (!own.input) own.parameters.push_back(node);
      continue;
    }
    std::unordered_set<Node*> parameters;
    for (const auto& edge : node->next_edges()) {
      if (!edge.function) continue;
      const Below& other = below[edge.function.get()];
      own.input |= other.input;
      // Those under a node that leads to an input are that node's.
      if (!other.input) parameters.insert(other.parameters.begin(), other.parameters.end());
    }
    own.parameters.assign(parameters.begin(), parameters.end());
    if (!own.input || own.parameters.empty()) continue;
    for (Node* parameter : own.parameters) separable &= taken.insert(parameter).second;
    boundary.push_back({node, own.parameters});
  }
  // Ways from a root to parameters alone, past every input.
  for (Node* root : roots) {
    if (root != nullptr && !below[root].input && !below[root].parameters.empty()) separable = false;
  }
}

}  // namespace lockstep
