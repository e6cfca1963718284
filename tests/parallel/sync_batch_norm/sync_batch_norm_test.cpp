// Batch norm over ranks equals batch norm of one process on the whole batch, as a function and in
// layers: the cases Y1 to Y5.

#include "lockstep/parallel/sync_batch_norm/sync_batch_norm.h"

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <gmock/gmock.h>
#include <numeric>
#include <string>
#include <vector>

#include "tests/comm/group_factory.h"
#include "tests/support/places.h"
#include <ATen/ops/arange.h>
#include <ATen/ops/batch_norm.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/rand.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/zeros.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/instancenorm.h>

#include "lockstep/comm/process_group.h"
#include "lockstep/core/error.h"

namespace lockstep {
namespace {

using ::testing::HasSubstr;
using ::testing::ThrowsMessage;
using torch::Tensor;

constexpr double kMomentum = 0.1, kEps = 1e-5;

/// A layer's tensors, a batch for each of several steps, and a factor for each output, so that
/// gradients differ.
struct Problem {
  Tensor weight, bias;
  std::vector<Tensor> inputs, factors;
};

/// The results of training: of each step the output and the input's gradient, and the rest.
struct Outcome {
  std::vector<Tensor> outputs, input_gradients;
  Tensor weight_gradient, bias_gradient, running_mean, running_var;
};

template <typename Norm>
Outcome train(const Problem& problem, const Norm& norm) {
  const auto leaf = [](const Tensor& tensor) {
    return tensor.defined() ? tensor.detach().clone().requires_grad_() : tensor;
  };
  const auto channels = problem.inputs[0].size(1);
  const auto type =
      problem.inputs[0].scalar_type() == torch::kDouble ? torch::kDouble : torch::kFloat;
  Outcome outcome;
  outcome.running_mean = at::zeros({channels}, type);
  outcome.running_var = at::ones({channels}, type);
  const auto weight = leaf(problem.weight), bias = leaf(problem.bias);
  for (std::size_t step = 0; step < problem.inputs.size(); ++step) {
    auto input = leaf(problem.inputs[step]);
    const auto output = norm(input, weight, bias, outcome.running_mean, outcome.running_var);
    (output * problem.factors[step]).sum().backward();
    outcome.outputs.push_back(output.detach());
    outcome.input_gradients.push_back(input.grad());
  }
  if (weight.defined()) outcome.weight_gradient = weight.grad();
  if (bias.defined()) outcome.bias_gradient = bias.grad();
  return outcome;
}

Outcome train_whole(const Problem& problem) {
  return train(
      problem, [](const auto& input, const auto& weight, const auto& bias, auto& mean, auto& var) {
        return at::batch_norm(input, weight, bias, mean, var, true, kMomentum, kEps, true);
      });
}

/// Returns the samples of one rank.
Problem share_of(const Problem& problem, const std::vector<std::int64_t>& samples, int rank) {
  Problem share = problem;
  const auto first = std::accumulate(samples.begin(), samples.begin() + rank, std::int64_t{0});
  const auto size = samples[static_cast<std::size_t>(rank)];
  for (auto* tensors : {&share.inputs, &share.factors}) {
    for (Tensor& tensor : *tensors) tensor = testing::here(tensor.narrow(0, first, size));
  }
  share.weight = testing::here(problem.weight);
  share.bias = testing::here(problem.bias);
  return share;
}

void expect_close(const Tensor& actual, const Tensor& expected, const std::string& what) {
  ASSERT_EQ(actual.defined(), expected.defined()) << what;
  if (!actual.defined()) return;
  ASSERT_EQ(actual.scalar_type(), expected.scalar_type()) << what;
  ASSERT_EQ(actual.sizes(), expected.sizes()) << what;
  const auto type = actual.scalar_type();
  const double tolerance = type == torch::kDouble ? 1e-10 : type == torch::kFloat ? 2e-5 : 2e-2;
  const Tensor there = testing::here(expected);
  EXPECT_TRUE(actual.allclose(there, tolerance, tolerance))
      << what << " differs by " << (actual - there).abs().max().item<double>();
}

Tensor sum_over_ranks(const Tensor& tensor, const ProcessGroup& world) {
  if (!tensor.defined()) return tensor;
  auto sum = tensor.clone();
  world.all_reduce(sum).wait();
  return sum;
}

/// Trains on shares of these sizes, and on the whole, and compares all that is left.
void expect_parity(const Problem& problem, const std::vector<std::int64_t>& samples) {
  const auto whole = train_whole(problem);
  testing::run_ranks(static_cast<int>(samples.size()), [&](ProcessGroup world) {
    const int rank = world.rank();
    const auto own = train(share_of(problem, samples, rank),
        [&](const auto& input, const auto& weight, const auto& bias, auto& mean, auto& var) {
          return sync_batch_norm(input, weight, bias, mean, var, kMomentum, kEps, world);
        });
    const auto expected = share_of({{}, {}, whole.outputs, whole.input_gradients}, samples, rank);
    for (std::size_t step = 0; step < own.outputs.size(); ++step) {
      expect_close(own.outputs[step], expected.inputs[step], "output");
      expect_close(own.input_gradients[step], expected.factors[step], "gradient of the input");
    }
    expect_close(sum_over_ranks(own.weight_gradient, world), whole.weight_gradient,
        "gradient of the weight");
    expect_close(
        sum_over_ranks(own.bias_gradient, world), whole.bias_gradient, "gradient of the bias");
    expect_close(own.running_mean, whole.running_mean, "running mean");
    expect_close(own.running_var, whole.running_var, "running variance");
  });
}

Problem random_problem(const std::vector<std::int64_t>& sizes, at::ScalarType type, int steps) {
  Problem problem;
  const auto parameters = type == torch::kDouble ? torch::kDouble : torch::kFloat;
  problem.weight = at::rand({sizes[1]}, parameters) + 0.5;
  problem.bias = at::randn({sizes[1]}, parameters);
  for (int step = 0; step < steps; ++step) {
    problem.inputs.push_back((at::randn(sizes) * 2 + 1).to(type));
    problem.factors.push_back(at::randn(sizes).to(type));
  }
  return problem;
}

class Ranks : public ::testing::TestWithParam<int> {
 protected:
  void SetUp() override { torch::manual_seed(1); }
  std::vector<std::int64_t> two_each() const {
    return std::vector<std::int64_t>(static_cast<std::size_t>(GetParam()), 2);
  }
  std::int64_t batch() const { return 2 * GetParam(); }
};

TEST_P(Ranks, EqualTheWholeBatchY1) {
  expect_parity(random_problem({batch(), 3, 4, 5}, torch::kDouble, 5), two_each());
  expect_parity(random_problem({batch(), 3, 4, 5}, torch::kFloat, 5), two_each());
  expect_parity(random_problem({batch(), 6}, torch::kDouble, 5), two_each());
  auto problem = random_problem({batch(), 3, 4}, torch::kDouble, 5);
  problem.weight = problem.bias = Tensor();
  expect_parity(problem, two_each());
}

TEST_P(Ranks, EqualItInChannelsLastAndKeepTheFormatY1) {
  auto problem = random_problem({batch(), 3, 4, 5}, torch::kDouble, 5);
  for (Tensor& input : problem.inputs) input = input.contiguous(at::MemoryFormat::ChannelsLast);
  expect_parity(problem, two_each());
  testing::run_ranks(GetParam(), [&](ProcessGroup world) {
    const auto output =
        sync_batch_norm(testing::here(problem.inputs[0]), {}, {}, {}, {}, 0, kEps, world);
    EXPECT_TRUE(output.is_contiguous(at::MemoryFormat::ChannelsLast));
  });
}

TEST_P(Ranks, KeepHalfTypesY1) {
  for (const auto type : {torch::kBFloat16, torch::kHalf}) {
    expect_parity(random_problem({batch(), 3, 4, 5}, type, 1), two_each());
  }
}

TEST_P(Ranks, MayHaveOneSampleEachOrDifferentNumbersY2Y4) {
  std::vector<std::int64_t> one_each(static_cast<std::size_t>(GetParam()), 1), different;
  expect_parity(random_problem({GetParam(), 2}, torch::kDouble, 5), one_each);
  for (int rank = 0; rank < GetParam(); ++rank) different.push_back(rank + 2);
  const auto all = std::accumulate(different.begin(), different.end(), std::int64_t{0});
  expect_parity(random_problem({all, 3, 2, 2}, torch::kDouble, 3), different);
}

INSTANTIATE_TEST_SUITE_P(SyncBatchNorm, Ranks, ::testing::Values(2, 3));

TEST(SyncBatchNorm, CountsARankWithoutSamples) {
  torch::manual_seed(2);
  expect_parity(random_problem({4, 3}, torch::kDouble, 2), {4, 0});
}

TEST(SyncBatchNorm, WeightsRanksByTheirValuesY3) {
  testing::run_ranks(2, [](ProcessGroup world) {
    const auto power = [&](double base) { return std::pow(base, world.rank() - 1); };
    const auto length = world.rank() == 0 ? 10 : 100;
    const auto input =
        at::cat({at::full({2, 1, length}, power(0.1)), at::full({2, 1, length}, power(0.3))}, 1);
    auto mean = at::zeros({2}), var = at::ones({2});
    for (int pass = 0; pass < 100; ++pass) {
      sync_batch_norm(input, {}, {}, mean, var, 0.99, kEps, world);
    }
    EXPECT_NEAR(mean[0].item<double>(), 1.8181818, 1e-6);
    EXPECT_NEAR(mean[1].item<double>(), 1.2121212, 1e-6);
    EXPECT_NEAR(var[0].item<double>(), 6.7247821, 1e-5);
    EXPECT_NEAR(var[1].item<double>(), 0.4520087, 1e-6);
  });
}

TEST(SyncBatchNorm, KeepsTheVarianceOfValuesFarFromZero) {
  testing::run_ranks(2, [](ProcessGroup world) {
    const double sign = world.rank() == 0 ? 1 : -1;
    const auto input = at::full({8, 1}, 1e7 + sign, torch::kDouble);
    auto mean = at::zeros({1}, torch::kDouble), var = at::zeros({1}, torch::kDouble);
    sync_batch_norm(input, {}, {}, mean, var, 1, kEps, world);
    EXPECT_NEAR(var.item<double>(), 16.0 / 15, 1e-9);
  });
}

// As LibTorch's batch norm: a graph that saved the running statistics still runs backward.
TEST(SyncBatchNorm, LeavesGraphsOfEarlierCallsUsable) {
  testing::run_ranks(2, [](ProcessGroup world) {
    const auto input = at::randn({4, 3}).requires_grad_();
    auto mean = at::zeros({3}), var = at::ones({3});
    const auto first = at::batch_norm(input, {}, {}, mean, var, true, kMomentum, kEps, true);
    const auto second = sync_batch_norm(input, {}, {}, mean, var, kMomentum, kEps, world);
    (first.pow(3).sum() + second.pow(3).sum()).backward();
    EXPECT_TRUE(input.grad().defined());
    EXPECT_FALSE(mean.equal(at::zeros({3})));
  });
}

TEST(SyncBatchNorm, RefusesOneValueInAll) {
  EXPECT_THAT(
      [] {
        sync_batch_norm(at::ones({1, 3}), {}, {}, {}, {}, 0, kEps, ProcessGroup());
      },
      ThrowsMessage<InvalidArgument>(HasSubstr("more than one value a channel")));
}

TEST(SyncBatchNorm, RefusesASecondDerivative) {
  auto input = at::randn({4, 3}).requires_grad_();
  const auto loss = sync_batch_norm(input, {}, {}, {}, {}, 0, kEps, ProcessGroup()).square().sum();
  EXPECT_THAT([&] { torch::autograd::grad({loss}, {input}, {}, true, true); },
      ThrowsMessage<Error>(HasSubstr("a second derivative")));
}

/// A block that holds its layers by type, as users write them.
class BlockImpl : public torch::nn::Cloneable<BlockImpl> {
 public:
  BlockImpl() { reset(); }
  void reset() override {
    conv = register_module("conv", torch::nn::Conv2d(torch::nn::Conv2dOptions(2, 3, 1)));
    norm = register_module("norm", torch::nn::BatchNorm2d(3));
  }
  Tensor forward(const Tensor& input) { return norm(conv(input)).relu(); }
  torch::nn::Conv2d conv = nullptr;
  torch::nn::BatchNorm2d norm = nullptr;
};
TORCH_MODULE(Block);

torch::nn::Sequential nested() {
  torch::manual_seed(3);
  torch::nn::Sequential net(Block(), torch::nn::BatchNorm2d(3));
  net->to(torch::kDouble);
  return net;
}

void expect_same_buffers(const torch::nn::Module& actual, const torch::nn::Module& expected) {
  const auto buffers = expected.named_buffers();
  for (const auto& item : actual.named_buffers()) {
    const Tensor there = testing::here(buffers[item.key()]);
    EXPECT_TRUE(item.value().allclose(there, 1e-10, 1e-10)) << item.key();
  }
}

TEST(SyncBatchNormScope, ReachesNestedLayersAndPassesASubGroupOnY5) {
  std::vector<torch::nn::Sequential> nets, wholes;
  for (int i = 0; i < 4; ++i) nets.push_back(nested());
  for (int i = 0; i < 2; ++i) wholes.push_back(nested());
  const auto inputs = at::randn({8, 2, 3, 3}, torch::kDouble);
  const auto halves = inputs.chunk(2);
  std::vector<Tensor> outputs;
  for (std::size_t i = 0; i < 2; ++i) outputs.push_back(wholes[i]->forward(halves[i]));

  testing::run_ranks(4, [&](ProcessGroup world) {
    const auto rank = static_cast<std::size_t>(world.rank());
    const auto pair = world.split(world.rank() / 2, world.rank());
    const SyncBatchNormScope scope(pair);
    testing::bring_here(*nets[rank]);
    const auto output = nets[rank]->forward(testing::here(inputs.chunk(4)[rank]));
    const auto expected = testing::here(outputs[rank / 2].chunk(2)[rank % 2]);
    EXPECT_TRUE(output.allclose(expected, 1e-10, 1e-10));
    expect_same_buffers(*nets[rank], *wholes[rank / 2]);
  });
}

// LibTorch computes an instance norm by a batch norm of all samples' channels.
TEST(SyncBatchNormScope, LeavesInstanceNormToEachSample) {
  torch::nn::InstanceNorm2d whole(2);
  const auto inputs = at::randn({6, 2, 3, 3}, torch::kDouble).set_requires_grad(true);
  const auto weights = at::randn({6, 2, 3, 3}, torch::kDouble);
  const auto outputs = whole(inputs);
  (outputs * weights).sum().backward();
  testing::run_ranks(2, [&](ProcessGroup world) {
    const std::int64_t first = 3 * world.rank(), end = first + 3;
    const auto part = [&](const Tensor& tensor) {
      return testing::here(tensor.detach().slice(0, first, end));
    };
    const auto input = part(inputs).clone().set_requires_grad(true);
    torch::nn::InstanceNorm2d norm(2);
    const SyncBatchNormScope scope(world);
    const auto output = norm(input);
    (output * part(weights)).sum().backward();
    EXPECT_TRUE(output.allclose(part(outputs), 1e-10, 1e-10));
    EXPECT_TRUE(input.grad().allclose(part(inputs.grad()), 1e-10, 1e-10));
  });
}

TEST(SyncBatchNormScope, EndsWithItsScope) {
  testing::run_ranks(2, [](ProcessGroup world) {
    torch::nn::BatchNorm1d net(2), alone(2);
    const auto input = at::full({4, 2}, 1.0 * world.rank()) + at::arange(4.0).view({4, 1});
    { const SyncBatchNormScope scope(world); }
    EXPECT_TRUE(net->forward(input).equal(alone->forward(input)));
    EXPECT_TRUE(net->running_mean.equal(alone->running_mean));
  });
}

TEST(SyncBatchNormScope, EvaluatesOnOneRankWithoutACollectiveY5) {
  auto net = nested();
  net->eval();
  const auto input = at::randn({4, 2, 3, 3}, torch::kDouble);
  const auto expected = net->forward(input);
  testing::run_ranks(2, [&](ProcessGroup world) {
    if (world.rank() != 0) return;
    const SyncBatchNormScope scope(world);
    EXPECT_TRUE(net->forward(input).equal(expected));
  });
}

TEST(SyncBatchNormLayer, TakesOneSampleARankY2) {
  const auto inputs = at::randn({2, 2}, torch::kDouble);
  torch::nn::BatchNorm1d whole(2);
  whole->to(torch::kDouble);
  const auto expected = whole->forward(inputs);
  testing::run_ranks(2, [&](ProcessGroup world) {
    SyncBatchNorm norm(torch::nn::BatchNormOptions(2), world);
    norm->to(torch::kDouble);
    const auto output = norm(testing::here(inputs.narrow(0, world.rank(), 1)));
    EXPECT_TRUE(output.cpu().allclose(expected.narrow(0, world.rank(), 1).cpu(), 1e-10, 1e-10));
    expect_same_buffers(*norm, *whole);
  });
}

TEST(SyncBatchNormLayer, AveragesAllBatchesAlikeWithoutAMomentum) {
  const auto options = torch::nn::BatchNormOptions(2).momentum(std::nullopt);
  torch::nn::BatchNorm1d plain(options);
  SyncBatchNorm norm(options, ProcessGroup());
  for (int step = 0; step < 3; ++step) {
    const auto input = at::randn({5, 2}) * (step + 1);
    EXPECT_TRUE(norm(input).allclose(plain(input), 1e-5, 1e-5));
  }
  EXPECT_TRUE(norm->running_var.allclose(plain->running_var, 1e-5, 1e-5));
  norm->eval();
  plain->eval();
  const auto input = at::randn({1, 2});
  EXPECT_TRUE(norm(input).allclose(plain(input), 1e-5, 1e-5));
}

TEST(SyncBatchNormLayer, CanBeClonedWithItsGroup) {
  SyncBatchNorm norm(torch::nn::BatchNormOptions(2), ProcessGroup());
  norm->running_mean.fill_(3);
  const auto copy = std::dynamic_pointer_cast<SyncBatchNormImpl>(norm->clone());
  EXPECT_TRUE(copy->running_mean.equal(norm->running_mean));
  EXPECT_EQ(copy->forward(at::randn({4, 2})).size(0), 4);
}

TEST(SyncBatchNormLayer, NamesAWrongNumberOfChannels) {
  SyncBatchNorm norm(torch::nn::BatchNormOptions(2), ProcessGroup());
  EXPECT_THAT(
      [&] {
        norm(at::randn({4, 3}));
      },
      ThrowsMessage<InvalidArgument>(HasSubstr("expected an input [N, 2, ...], got [4, 3]")));
}

}  // namespace
}  // namespace lockstep
