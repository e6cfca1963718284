#pragma once

#include <unordered_set>
#include <vector>

#include <torch/csrc/autograd/function.h>

namespace lockstep {

/// Is a node that computes gradients of inputs and of parameters, with the parameters' own nodes.
struct BoundaryNode {
  torch::autograd::Node* node = nullptr;
  std::vector<torch::autograd::Node*> parameters;
};

/// Finds the boundary nodes of the graph below the roots; `inputs` are the inputs' own nodes.
///
/// The graph must have at least one way to an input. Every parameter below a root belongs to one
/// boundary node; if one belongs to several, `separable` is false.
struct GraphParts {
  GraphParts(
      const std::vector<torch::autograd::Node*>& roots,
      const std::unordered_set<torch::autograd::Node*>& inputs);

  std::vector<BoundaryNode> boundary;
  bool separable = true;
};

}  // namespace lockstep
