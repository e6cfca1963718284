#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <torch/nn/module.h>
#include <torch/nn/pimpl.h>
#include <torch/types.h>

namespace lockstep::nn {

/// Is a net that turns a batch of images into one row of class scores (logits) each.
class ModelImpl : public torch::nn::Module {
 public:
  /// Takes [N, channels, height, width], or [N, features] for `toy`; gives [N, classes] without
  /// softmax.
  virtual torch::Tensor forward(torch::Tensor images) = 0;
};
TORCH_MODULE(Model);

/// Makes a net by its name, initialised as PyTorch does, from the default random generator.
///
/// Names of parameters are Python's, so that weights can be exchanged. Throws InvalidArgument that
/// lists the names for an unknown one.
///
///     Model model = make_model("mnist-small", 10);
///     torch::Tensor logits = model(images);
Model make_model(const std::string& name, std::int64_t classes);

/// Lists the names that make_model() knows.
std::vector<std::string> model_names();

}  // namespace lockstep::nn
