#pragma once

#include <cstddef>
#include <functional>
#include <string>

#include <torch/nn/module.h>
#include <torch/nn/modules/container/any.h>
#include <torch/ordered_dict.h>
#include <torch/types.h>

namespace lockstep::nn {

/// A model as a chain: each layer takes what the one before it gives.
///
/// A layer's key and the name of a parameter in it, joined by a dot, are the parameter's name in
/// the model: `layer1.0` and `conv1.weight`. So a part of the chain keeps the model's names.
using Layers = torch::OrderedDict<std::string, torch::nn::AnyModule>;

/// A layer whose parameters have the model's names by themselves, whatever its key.
class NamedAsInModel : public torch::nn::Module {
 public:
  using Module::Module;
};

/// Returns the index of the layer of that name, or of the first one below it: `layer3` finds
/// `layer3.0`. Throws InvalidArgument that lists the keys if there is none.
///
///     const std::size_t cut = layer_index(model->layers(), "layer3");   // begins the second stage
std::size_t layer_index(const Layers& layers, const std::string& name);

/// Runs the layers one after the other.
torch::Tensor run_layers(Layers& layers, torch::Tensor input);

/// Makes a layer without parameters of a function.
torch::nn::AnyModule layer_of(std::function<torch::Tensor(torch::Tensor)> function);

/// Makes the first layer of a convolution net: checks that images are [N, 3, height, width] and
/// lays them out channels-last; the message of the InvalidArgument begins with the net's name.
///
/// With channels-last weights all that follows stays in that layout.
torch::nn::AnyModule colour_image_layer(const char* net);

/// Computes max(input, 0); in place where the same autograd graph computed the input.
///
/// What comes from outside is left alone: the input of a pipeline's stage is a leaf, may be kept
/// for computing the stage again, and belongs to the stage before.
torch::Tensor relu_layer(torch::Tensor input);

/// Turns [N, ...] into [N, features].
torch::Tensor flatten_layer(torch::Tensor input);

}  // namespace lockstep::nn
