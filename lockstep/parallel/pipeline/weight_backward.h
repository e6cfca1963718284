#pragma once

#include <vector>

#include <torch/csrc/autograd/function.h>
#include <torch/types.h>

namespace lockstep {

/// The second half of a backward that was cut in two: the gradients of the parameters.
///
/// Note [Backward in two parts]
/// The stage before waits for the gradients of a stage's inputs; those of its parameters can wait
/// for an idle moment (Qi et al., "Zero Bubble Pipeline Parallelism", 2023). A node of the
/// graph that lies on a way to the inputs and has a parameter below it, such as a linear layer's,
/// computes both. The first part runs the graph for the inputs alone and catches the gradients that
/// arrive at these nodes; the second starts from each of them and goes to its parameters alone.
class WeightBackward {
 public:
  /// Has nothing to do.
  WeightBackward() = default;

  /// Accumulates the gradients of the parameters. Once.
  void run();

 private:
  friend WeightBackward backward_inputs(const std::vector<torch::Tensor>& roots,
      const std::vector<torch::Tensor>& gradients, const std::vector<torch::Tensor>& inputs);

  struct Part {
    torch::autograd::edge_list from;
    std::vector<torch::Tensor> gradients;
    torch::autograd::edge_list parameters;
  };
  std::vector<Part> parts_;
};

/// Runs the first part: accumulates the gradients of the inputs, which are leaves, and returns the
/// second. `gradients` are those of the roots; undefined ones stand for 1.
///
/// A graph in which a parameter is used at several places, one above the other, is not cut:
/// everything is done here. Without inputs that require gradients the second part does everything.
WeightBackward backward_inputs(const std::vector<torch::Tensor>& roots,
    const std::vector<torch::Tensor>& gradients, const std::vector<torch::Tensor>& inputs);

}  // namespace lockstep
