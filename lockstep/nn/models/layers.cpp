#include "lockstep/nn/models/layers.h"

#include <utility>

#include <torch/nn/modules/container/functional.h>

#include "lockstep/core/error.h"
#include "lockstep/core/spans.h"
#include "lockstep/core/text.h"

namespace lockstep::nn {

std::size_t layer_index(const Layers& layers, const std::string& name) {
  std::size_t index = 0;
  for (const auto& layer : layers) {
    if (layer.key() == name || layer.key().starts_with(name + ".")) return index;
    ++index;
  }
  throw InvalidArgument(
      concat("layer_index: there is no such layer: ", name, "; there are ", joined(layers.keys())));
}

torch::Tensor run_layers(Layers& layers, torch::Tensor input) {
  torch::nn::AnyValue value(std::move(input));
  for (auto& layer : layers) {
    const SpanScope span(Activity::kLayer, layer.key());
    value = layer.value().any_forward(std::move(value));
  }
  return value.get<torch::Tensor>();
}

torch::nn::AnyModule layer_of(std::function<torch::Tensor(torch::Tensor)> function) {
  return torch::nn::AnyModule(torch::nn::Functional(std::move(function)));
}

torch::nn::AnyModule colour_image_layer(const char* net) {
  return layer_of([net](const torch::Tensor& images) {
    check(images.dim() == 4 && images.size(1) == 3, net,
        ": takes images of [N, 3, height, width], not ", images.sizes());
    return images.contiguous(at::MemoryFormat::ChannelsLast);
  });
}

torch::Tensor relu_layer(torch::Tensor input) {
  return input.grad_fn() ? input.relu_() : input.relu();
}

torch::Tensor flatten_layer(torch::Tensor input) { return input.flatten(1); }

}  // namespace lockstep::nn
