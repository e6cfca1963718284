#pragma once

#include <vector>

#include <torch/types.h>

namespace lockstep {

/// Are the tensors that came into a stage: leaves that collect gradients, and what the layers see.
///
/// The layers see no leaf but a tensor with a history that shares its memory and version: a layer
/// that works in place, such as a ReLU right after the cut, may do so as in the whole model.
struct StageInput {
  StageInput() = default;
  /// Takes the tensors to the device. Those that require gradients become leaves.
  StageInput(const std::vector<torch::Tensor>& tensors, torch::Device device);

  std::vector<torch::Tensor> leaves;
  std::vector<torch::Tensor> seen;

  /// Gives the leaves that collect gradients.
  std::vector<torch::Tensor> wanting() const;
  /// Gives each leaf's gradient, undefined where there is none.
  std::vector<torch::Tensor> gradients() const;
};

}  // namespace lockstep
