#pragma once

#include <cstdint>
#include <lockstep/lockstep.h>

#include <ATen/CPUGeneratorImpl.h>
#include <torch/torch.h>

/// The net of the DDP demos.
struct ToyNetImpl : torch::nn::Module {
  torch::nn::Linear net1{register_module("net1", torch::nn::Linear(10, 10))};
  torch::nn::ReLU relu{register_module("relu", torch::nn::ReLU())};
  torch::nn::Linear net2{register_module("net2", torch::nn::Linear(10, 5))};

  torch::Tensor forward(const torch::Tensor& inputs) { return net2(relu(net1(inputs))); }
};
TORCH_MODULE(ToyNet);

/// Draws new weights. Ranks that are threads share LibTorch's generator, so this uses its own.
inline void draw_weights(torch::nn::Module& net, int seed) {
  const torch::NoGradGuard no_gradients;
  auto generator = at::detail::createCPUGenerator(static_cast<std::uint64_t>(seed));
  for (auto& parameter : net.parameters()) parameter.uniform_(-0.3, 0.3, generator);
}

struct ToyBatch {
  torch::Tensor inputs, labels;
};

/// Returns a rank's share of 40 samples, which are the same whatever the number of ranks: a single
/// rank gets all of them, and so takes the step that several ranks take together.
inline ToyBatch share_of_batch(const lockstep::ProcessGroup& world) {
  auto generator = at::detail::createCPUGenerator(7);
  const auto share = [&](const torch::Tensor& whole) {
    return whole.tensor_split(world.size())[static_cast<std::size_t>(world.rank())];
  };
  const auto inputs = torch::randn({40, 10}, generator);
  const auto labels = torch::randn({40, 5}, generator);
  return {share(inputs), share(labels)};
}
