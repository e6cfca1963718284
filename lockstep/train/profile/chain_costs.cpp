#include "lockstep/train/profile/chain_costs.h"

#include "lockstep/device/parameters.h"
#include "lockstep/parallel/balance/layer_costs.h"
#include "lockstep/parallel/pipeline/layers.h"

namespace lockstep {
namespace {

constexpr int kTimedPasses = 5;
constexpr double kMillisecondsOfSecond = 1e3;

// A chain that lacks parameters is a function around a net that cannot be cut.
nn::Layers chain_of(const nn::Model& model) {
  nn::Layers layers = model->layers();
  if (parameters_of(layers).size() == parameters_of(*model).size()) return layers;
  nn::Layers whole;
  whole.insert("net", torch::nn::AnyModule(model));
  return whole;
}

ChainLayer in_milliseconds(const LayerCosts& layer) {
  return {.name = layer.name,
      .forward = kMillisecondsOfSecond * layer.forward,
      .backward_input = kMillisecondsOfSecond * layer.backward_input,
      .backward_weight = kMillisecondsOfSecond * layer.backward_weight,
      .backward = kMillisecondsOfSecond * layer.backward,
      .activation_bytes = layer.activation_bytes,
      .output_bytes = layer.output_bytes,
      .parameters = layer.parameter_bytes};
}

}  // namespace

std::vector<ChainLayer> chain_costs(const nn::Model& model, const torch::Tensor& images) {
  std::vector<ChainLayer> chain;
  for (const LayerCosts& layer : layer_costs(chain_of(model), images, kTimedPasses))
    chain.push_back(in_milliseconds(layer));
  return chain;
}

}  // namespace lockstep
