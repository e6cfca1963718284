#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <vector>

#include <torch/csrc/autograd/edge.h>
#include <torch/nn/module.h>
#include <torch/types.h>

#include "lockstep/parallel/data_parallel/module_tensors.h"
#include "lockstep/parallel/place/place.h"

namespace lockstep::data_parallel {

/// Makes another module like this one by its clone(). Throws InvalidArgument that names the module
/// or sub-module that has no clone().
std::shared_ptr<torch::nn::Module> clone_module(const torch::nn::Module& module);

/// Calls a function that constructs modules and restores the default random generator: constructing
/// draws the first values of parameters, which a replica does not need.
void without_drawing(const std::function<void()>& construct);

/// A lasting copy of the user's module in a place, brought up to date before each forward.
///
/// On the device of the module it shares the memory of the parameters, elsewhere it copies them.
/// The first replica shares the buffers as well, so that running statistics persist; the others
/// have copies that end with the forward, as in PyTorch.
class Replica {
 public:
  /// Takes a module that is built like the original, whatever its values are. Throws
  /// InvalidArgument if it is not.
  Replica(std::shared_ptr<torch::nn::Module> module, const torch::nn::Module& original,
      const Place& place, bool is_first);

  /// Takes over values, what requires gradients, and training or evaluation of each sub-module.
  void follow(const std::vector<ModuleTensor>& originals, const torch::nn::Module& original);

  /// Returns where the gradient of a tensor arrives in this replica's graph; an invalid edge if the
  /// tensor came before under another name.
  torch::autograd::Edge gradient_edge(std::size_t index) const;

 private:
  std::vector<torch::Tensor> values_here(const std::vector<ModuleTensor>& originals) const;
  void follow_modes(const torch::nn::Module& original);

  std::shared_ptr<torch::nn::Module> module_;
  std::vector<ModuleTensor> tensors_;
  std::vector<bool> repeats_;  // whether the tensor came before under another name
  std::vector<ValueCopy> copies_;
  torch::Device device_;
  bool is_first_;
  bool is_placed_ = false;
};

}  // namespace lockstep::data_parallel
