#pragma once

#include <string>

#include <torch/nn/modules/container/any.h>
#include <torch/types.h>

#include "lockstep/parallel/pipeline/stage_input.h"
#include "lockstep/parallel/pipeline/weight_backward.h"

namespace lockstep {

/// A layer between its forward and its backward, by the calls that a stage of a pipeline makes:
/// what is measured of them is what a pipeline will execute. Autocast is for forward alone.
class LayerPass {
 public:
  /// The input shares its memory, as between layers of one net, and gets a gradient if it requires
  /// one. `name` is for messages.
  LayerPass(std::string name, torch::nn::AnyModule layer, const torch::Tensor& input);

  torch::Device device() const { return input_.leaves.front().device(); }

  /// Throws InvalidArgument if the layer gives no tensor.
  void forward();

  /// Returns what the next layer takes.
  torch::Tensor output() const;

  /// Return whether there is something to compute in backward, and what.
  bool has_backward() const { return output_.requires_grad(); }
  bool has_input_gradient() const;
  bool has_parameter_gradients() const;

  /// Accumulates all gradients; the argument is that of the output. Once.
  void backward(const torch::Tensor& gradient);

  /// Accumulate that of the input, then those of the parameters; see Note [Backward in two parts].
  void backward_input(const torch::Tensor& gradient);
  void backward_weight();

  /// Returns the gradient of the input, undefined if there is none.
  torch::Tensor input_gradient() const { return input_.leaves.front().grad(); }

 private:
  std::string name_;
  torch::nn::AnyModule layer_;
  StageInput input_;
  torch::Tensor output_;  // with its graph
  WeightBackward weights_;
};

}  // namespace lockstep
