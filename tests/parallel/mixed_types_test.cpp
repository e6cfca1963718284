// Models of several element types, and autocast: case D14 of the conformance list.

#include <gtest/gtest.h>

#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/linear.h>

#include "lockstep/comm/run_ranks.h"
#include "lockstep/nn/autocast.h"
#include "lockstep/parallel/distributed_data_parallel.h"

#include "replica_checks.h"

namespace lockstep {
namespace {

using testing::constant;
using testing::expect_same_on_all_ranks;
using torch::nn::Linear;

TEST(MixedTypes, ParametersOfSeveralTypesAreAveragedEachInItsOwn) {
  run_ranks(3, [](ProcessGroup group) {
    torch::nn::Sequential net(Linear(2, 2), Linear(2, 2), Linear(2, 2), Linear(2, 1));
    net[0]->to(torch::kDouble);
    net[1]->to(torch::kBFloat16);
    net[3]->to(torch::kHalf);
    DistributedDataParallel model(net, group);
    for (int step = 0; step < 3; ++step) {
      net->zero_grad();
      const auto layer = [&](std::size_t index, const torch::Tensor& input) {
        const auto linear = net->children()[index]->as<Linear>();
        return linear->forward(input.to(linear->weight.scalar_type()));
      };
      // Not by operator(): no single forward passes tensors between types.
      const torch::Tensor input = constant({1, 2}, group.rank());
      layer(3, layer(2, layer(1, layer(0, input)))).sum().backward();
      for (const auto& parameter : net->parameters()) {
        EXPECT_EQ(parameter.grad().scalar_type(), parameter.scalar_type());
        expect_same_on_all_ranks(parameter.grad(), group);
      }
      EXPECT_EQ(net->parameters().back().grad().item<float>(), 1);
    }
    EXPECT_EQ(model.reducer().buckets().size(), 4u) << "one per type";
  });
}

TEST(MixedTypes, D14UnderAutocastEqualsOneProcessUnderAutocast) {
  const auto make_net = [] {
    torch::nn::Sequential net(Linear(7, 33), torch::nn::Tanh(), Linear(33, 5));
    const torch::NoGradGuard no_grad;
    for (auto& parameter : net->parameters())
      parameter.copy_(0.1 * torch::sin(torch::arange(parameter.numel())).view(parameter.sizes()));
    return net;
  };
  const auto step = [](auto& model, const torch::Tensor& input) {
    torch::Tensor loss;
    {
      const nn::Autocast autocast(at::kCPU, at::kBFloat16);
      loss = model(input).to(torch::kFloat).pow(2).mean();
    }
    loss.backward();
  };
  const torch::Tensor inputs = torch::cos(torch::arange(24 * 7)).view({24, 7});
  auto whole = make_net();
  auto forward = [&](const torch::Tensor& input) { return whole->forward(input); };
  step(forward, inputs);
  run_ranks(2, [&](ProcessGroup group) {
    auto net = make_net();
    DistributedDataParallel model(net, group);
    step(model, inputs.chunk(group.size(), 0)[static_cast<std::size_t>(group.rank())]);
    const auto parameters = net->parameters(), expected = whole->parameters();
    for (std::size_t i = 0; i < parameters.size(); ++i) {
      EXPECT_TRUE(torch::allclose(parameters[i].grad(), expected[i].grad(), 1e-3, 1e-3)) << i;
      expect_same_on_all_ranks(parameters[i].grad(), group);
    }
  });
}

}  // namespace
}  // namespace lockstep
