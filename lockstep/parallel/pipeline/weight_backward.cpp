#include "lockstep/parallel/pipeline/weight_backward.h"

#include <cstddef>
#include <unordered_map>
#include <unordered_set>

#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/variable.h>

namespace lockstep {
namespace {

using torch::autograd::Edge;
using torch::autograd::edge_list;
using torch::autograd::Engine;
using torch::autograd::Node;
using Tensors = std::vector<torch::Tensor>;

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

// The graph below a node: whether an input is there, and the parameters that no boundary node has
// yet.
struct Below {
  bool input = false;
  std::vector<Node*> parameters;
};

/// A node that computes gradients of inputs and of parameters, with the parameters' own nodes.
struct BoundaryNode {
  Node* node = nullptr;
  std::vector<Node*> parameters;
};

/// The boundary nodes of the graph below the roots; `inputs` are the inputs' own nodes.
///
/// The graph must have at least one way to an input. Every parameter below a root belongs to one
/// boundary node; if one belongs to several, `separable` is false.
struct GraphParts {
  GraphParts(const std::vector<Node*>& roots, const std::unordered_set<Node*>& inputs) {
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
      if (root != nullptr && !below[root].input && !below[root].parameters.empty())
        separable = false;
    }
  }

  std::vector<BoundaryNode> boundary;
  bool separable = true;
};

edge_list edges_of(const Tensors& tensors) {
  edge_list edges;
  for (const torch::Tensor& tensor : tensors)
    edges.push_back(torch::autograd::impl::gradient_edge(tensor));
  return edges;
}

Tensors with_ones(const Tensors& roots, Tensors gradients) {
  for (std::size_t index = 0; index < roots.size(); ++index) {
    if (!gradients[index].defined()) gradients[index] = torch::ones_like(roots[index].detach());
  }
  return gradients;
}

std::vector<Node*> nodes_of(const edge_list& edges) {
  std::vector<Node*> nodes;
  for (const Edge& edge : edges) nodes.push_back(edge.function.get());
  return nodes;
}

// The edges at which gradients arrive at a node.
edge_list inputs_of(Node* node) {
  edge_list edges;
  for (std::uint32_t index = 0; index < node->num_inputs(); ++index)
    edges.emplace_back(node->getptr(), index);
  return edges;
}

edge_list leaf_edges(const std::vector<Node*>& leaves) {
  edge_list edges;
  for (Node* leaf : leaves) edges.emplace_back(leaf->getptr(), 0);
  return edges;
}

// One of several outputs of a node, such as an LSTM's, may have got no gradient.
void drop_undefined(edge_list& edges, Tensors& gradients) {
  for (std::size_t index = gradients.size(); index-- > 0;) {
    if (gradients[index].defined()) continue;
    edges.erase(edges.begin() + static_cast<std::ptrdiff_t>(index));
    gradients.erase(gradients.begin() + static_cast<std::ptrdiff_t>(index));
  }
}

void accumulate(const torch::Tensor& leaf, const torch::Tensor& gradient) {
  if (!gradient.defined()) return;
  torch::Tensor& sum = leaf.mutable_grad();
  sum = sum.defined() ? sum + gradient : gradient;
}

}  // namespace

void WeightBackward::run() {
  auto& engine = Engine::get_default_engine();
  for (const Part& part : parts_) {
    if (!part.from.empty())
      engine.execute(part.from, part.gradients, false, false, true, part.parameters);
  }
  parts_.clear();
}

WeightBackward backward_inputs(
    const Tensors& roots, const Tensors& gradients, const Tensors& inputs) {
  auto& engine = Engine::get_default_engine();
  const edge_list from = edges_of(roots);
  const Tensors arriving = with_ones(roots, gradients);
  WeightBackward rest;
  if (inputs.empty()) {
    rest.parts_.push_back({from, arriving, {}});
    return rest;
  }
  edge_list wanted = edges_of(inputs);
  const std::vector<Node*> input_nodes = nodes_of(wanted);
  const GraphParts graph(nodes_of(from), {input_nodes.begin(), input_nodes.end()});
  if (!graph.separable) {
    torch::autograd::backward(roots, arriving);
    return rest;
  }
  for (const BoundaryNode& boundary : graph.boundary) {
    const edge_list caught = inputs_of(boundary.node);
    rest.parts_.push_back({caught, Tensors(caught.size()), leaf_edges(boundary.parameters)});
    wanted.insert(wanted.end(), caught.begin(), caught.end());
  }
  const Tensors results = engine.execute(from, arriving, true, false, false, wanted);
  auto next = results.begin();
  for (const torch::Tensor& input : inputs) accumulate(input, *next++);
  for (auto& part : rest.parts_) {
    for (torch::Tensor& gradient : part.gradients) gradient = *next++;
    drop_undefined(part.from, part.gradients);
  }
  return rest;
}

}  // namespace lockstep
