// DistributedDataParallel against the same training in one process; cases D1 to D14 of the
// conformance list, most of them restated from PyTorch's distributed_test.py.

#include "lockstep/parallel/distributed_data_parallel.h"

#include <algorithm>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <mutex>
#include <string>

#include "replica_checks.h"
#include "tests/comm/group_factory.h"
#include "tests/support/message_of.h"
#include <torch/nn/functional/loss.h>
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/linear.h>
#include <torch/optim/sgd.h>

#include "lockstep/comm/process_group.h"
#include "lockstep/core/error.h"

namespace lockstep {
namespace {

using ::testing::HasSubstr;
using torch::nn::Linear;
using torch::nn::LinearOptions;
using Options = DistributedDataParallelOptions;
using testing::constant;
using testing::expect_same_on_all_ranks;

torch::Tensor mean_square(const torch::Tensor& output, const torch::Tensor& target) {
  return torch::mse_loss(output, target);
}

torch::nn::Sequential make_net(std::int64_t seed, at::ScalarType type = torch::kFloat) {
  static std::mutex one_at_a_time;  // the default generator belongs to all threads
  const std::lock_guard lock(one_at_a_time);
  torch::manual_seed(static_cast<std::uint64_t>(seed));
  torch::nn::Sequential net(
      Linear(7, 33), torch::nn::ReLU(), Linear(33, 20), torch::nn::Tanh(), Linear(20, 5));
  net->to(type);
  return net;
}

struct Problem {
  torch::Tensor input, target;
};

Problem make_problem(std::int64_t samples, at::ScalarType type = torch::kFloat) {
  const torch::Tensor steps = torch::arange(samples * 7).view({samples, 7}).to(type);
  return {torch::sin(steps), torch::cos(steps.slice(1, 0, 5))};
}

Problem share_of(const Problem& whole, const ProcessGroup& group) {
  const auto part = [&](const torch::Tensor& tensor) {
    return tensor.chunk(group.size(), 0)[static_cast<std::size_t>(group.rank())];
  };
  return {part(whole.input), part(whole.target)};
}

template <typename Model>
void train_on(Model& model, torch::nn::Module& net, const Problem& problem, int steps) {
  torch::optim::SGD optimizer(net.parameters(), torch::optim::SGDOptions(0.1).momentum(0.9));
  for (int step = 0; step < steps; ++step) {
    optimizer.zero_grad();
    mean_square(model(problem.input), problem.target).backward();
    optimizer.step();
  }
}

std::vector<torch::Tensor> serial_parameters(at::ScalarType type, std::int64_t samples, int steps) {
  auto net = make_net(1, type);
  auto forward = [&](const torch::Tensor& input) { return net->forward(input); };
  train_on(forward, *net, make_problem(samples, type), steps);
  return net->parameters();
}

TEST(DistributedDataParallel, D1GradientsAreTheMeanOverTheRanks) {
  for (const int size : {1, 2, 4}) {
    testing::run_ranks(size, [](ProcessGroup group) {
      Linear net(LinearOptions(1, 1).bias(false));
      DistributedDataParallel model(net, group);
      model(constant({1, 1}, group.rank())).sum().backward();
      EXPECT_EQ(net->weight.grad().item<float>(), static_cast<float>(group.size() - 1) / 2);
    });
  }
}

TEST(DistributedDataParallel, D2EqualsOneProcessOnTheWholeBatch) {
  const auto doubles = serial_parameters(torch::kDouble, 24, 5);
  const auto floats = serial_parameters(torch::kFloat, 24, 5);
  for (const int size : {1, 2, 3, 4}) {
    for (const std::int64_t bytes : {1, 1024, 1 << 20}) {
      for (const auto type : {torch::kDouble, torch::kFloat}) {
        testing::run_ranks(size, [&](ProcessGroup group) {
          auto net = make_net(1, type);
          DistributedDataParallel model(
              net, group, Options().bucket_bytes(bytes).first_bucket_bytes(bytes));
          train_on(model, *net, share_of(make_problem(24, type), group), 5);
          const auto& expected = type == torch::kDouble ? doubles : floats;
          const double tolerance = type == torch::kDouble ? 1e-10 : 1e-5;
          const auto parameters = net->parameters();
          for (std::size_t i = 0; i < parameters.size(); ++i) {
            EXPECT_TRUE(
                torch::allclose(parameters[i].cpu(), expected[i].cpu(), tolerance, tolerance / 10))
                << i;
            expect_same_on_all_ranks(parameters[i], group);
          }
        });
      }
    }
  }
}

TEST(DistributedDataParallel, D2GradientsLieInTheirBucketAfterEveryStep) {
  testing::run_ranks(2, [](ProcessGroup group) {
    auto net = make_net(1);
    DistributedDataParallel model(net, group);
    for (int step = 0; step < 3; ++step) {
      net->zero_grad();
      model(torch::ones({2, 7})).sum().backward();
      std::int64_t elements = 0;
      std::vector<const float*> first, end;
      for (const auto& parameter : net->parameters()) {
        elements += parameter.numel();
        first.push_back(parameter.grad().data_ptr<float>());
        end.push_back(first.back() + parameter.numel());
      }
      EXPECT_EQ(
          *std::max_element(end.begin(), end.end()) - *std::min_element(first.begin(), first.end()),
          elements);
    }
  });
}

TEST(DistributedDataParallel, T7GradientsCanBeZeroedInPlace) {
  testing::run_ranks(2, [](ProcessGroup group) {
    Linear net(LinearOptions(1, 1).bias(false));
    DistributedDataParallel model(net, group);
    for (int step = 0; step < 3; ++step) {
      net->zero_grad(/*set_to_none=*/false);
      model(constant({1, 1}, group.rank())).sum().backward();
      EXPECT_EQ(net->weight.grad().item<float>(), 0.5f);
    }
  });
}

TEST(DistributedDataParallel, D3EveryRankTakesRankZerosParametersAndBuffers) {
  testing::run_ranks(3, [](ProcessGroup group) {
    torch::nn::Sequential net(Linear(4, 4), torch::nn::BatchNorm1d(4));
    {
      const torch::NoGradGuard no_grad;
      for (auto& parameter : net->parameters()) parameter.fill_(group.rank() + 1);
      net->named_buffers()["1.running_mean"].fill_(group.rank() + 10);
    }
    DistributedDataParallel model(net, group);
    EXPECT_TRUE(torch::all(net->parameters()[0] == 1).item<bool>());
    EXPECT_TRUE(torch::all(net->named_buffers()["1.running_mean"] == 10).item<bool>());

    model(constant({2, 4}, group.rank()));
    net->named_buffers()["1.running_mean"].fill_(group.rank() + 20);
    const torch::Tensor before = net->named_buffers()["1.num_batches_tracked"].clone();
    model(torch::zeros(
        {2, 4}));  // takes rank 0's 20, then moves a tenth of the way to the batch's mean
    expect_same_on_all_ranks(net->named_buffers()["1.running_mean"], group);
    EXPECT_EQ(net->named_buffers()["1.num_batches_tracked"].item<std::int64_t>(),
        before.item<std::int64_t>() + 1);
  });
}

TEST(DistributedDataParallel, D4OneRankMayEvaluateAlone) {
  testing::run_ranks(2, [](ProcessGroup group) {
    torch::nn::Sequential net(Linear(4, 4), torch::nn::BatchNorm1d(4));
    DistributedDataParallel model(net, group);
    if (group.rank() == 0) {
      model->eval();
      for (int i = 0; i < 6; ++i)
        EXPECT_TRUE(torch::equal(model(torch::ones({2, 4})), net->forward(torch::ones({2, 4}))));
      model->train();
      const torch::NoGradGuard no_grad;
      model(torch::ones({2, 4}));
    }
  });
}

TEST(DistributedDataParallel, D5AccumulationIsLocalUntilTheSynchronisedBackward) {
  testing::run_ranks(2, [](ProcessGroup group) {
    Linear net(LinearOptions(1, 1).bias(false));
    DistributedDataParallel model(net, group);
    for (int round = 0; round < 3; ++round) {
      net->zero_grad();
      {
        auto accumulate = model.no_sync();
        model(constant({1, 1}, group.rank() + 1)).sum().backward();
      }
      EXPECT_EQ(net->weight.grad().item<float>(), static_cast<float>(group.rank() + 1));
      model(constant({1, 1}, 10)).sum().backward();
      EXPECT_EQ(net->weight.grad().item<float>(), 11.5f);
    }
  });
}

TEST(DistributedDataParallel, D8ATiedParameterIsCountedOnce) {
  testing::run_ranks(2, [](ProcessGroup group) {
    Linear layer(LinearOptions(3, 3).bias(false));
    torch::nn::Sequential net(layer, layer);
    DistributedDataParallel model(net, group);
    EXPECT_EQ(net->parameters().size(), 2u);
    model(constant({1, 3}, group.rank() + 1)).sum().backward();
    expect_same_on_all_ranks(layer->weight.grad(), group);
  });
}

TEST(DistributedDataParallel, D11DifferentShapesAreRefusedOnEveryRank) {
  testing::run_ranks(3, [](ProcessGroup group) {
    torch::nn::Sequential net(Linear(2 + (group.rank() == 2 ? 1 : 0), 1));
    const std::string text =
        testing::message_of<InvalidArgument>([&] { DistributedDataParallel model(net, group); });
    EXPECT_THAT(text, HasSubstr("0.weight Float [1, 2] on rank 0"));
    EXPECT_THAT(text, HasSubstr("0.weight Float [1, 3] on rank 2"));
  });
}

TEST(DistributedDataParallel, D11AnotherNumberOfParametersIsRefusedOnEveryRank) {
  testing::run_ranks(2, [](ProcessGroup group) {
    torch::nn::Sequential net(Linear(2, 1));
    if (group.rank() == 1) net->push_back(Linear(1, 1));
    EXPECT_THROW(DistributedDataParallel(net, group), InvalidArgument);
  });
}

TEST(DistributedDataParallel, D14AnExceptionInForwardArrivesAsItIs) {
  EXPECT_THROW(testing::run_ranks(2,
                   [](ProcessGroup group) {
                     Linear net(2, 1);
                     DistributedDataParallel model(net, group);
                     if (group.rank() == 1) throw std::domain_error("forward");
                     model(torch::ones({1, 2})).sum().backward();
                   }),
      std::domain_error);
}

struct OutOfOrderImpl : torch::nn::Module {
  OutOfOrderImpl() {
    late = register_module("late", Linear(4, 4));
    early = register_module("early", Linear(4, 4));
  }
  // `late` is declared first but used last, so its gradient comes first.
  torch::Tensor forward(const torch::Tensor& input) { return late(early(input)); }
  Linear late{nullptr}, early{nullptr};
};
TORCH_MODULE(OutOfOrder);

TEST(DistributedDataParallel, BucketsAreCutAnewInTheOrderInWhichGradientsCame) {
  testing::run_ranks(2, [](ProcessGroup group) {
    OutOfOrder net;
    DistributedDataParallel model(net, group, Options().first_bucket_bytes(1).bucket_bytes(1));
    const auto first_of_each = [&] {
      std::vector<std::size_t> indices;
      for (const auto& bucket : model.reducer().buckets()) indices.push_back(bucket.parameters[0]);
      return indices;
    };
    // Parameters: 0 late.weight, 1 late.bias, 2 early.weight, 3 early.bias.
    EXPECT_THAT(first_of_each(), ::testing::ElementsAre(3, 2, 1, 0));
    for (int step = 0; step < 2; ++step) model(torch::ones({1, 4})).sum().backward();
    const auto rebuilt = first_of_each();
    ASSERT_EQ(rebuilt.size(), 4u);
    EXPECT_LT(rebuilt[0], 2u) << "the layer used last comes first";
    EXPECT_LT(rebuilt[1], 2u);
    expect_same_on_all_ranks(net->late->weight.grad(), group);
  });
}

TEST(DistributedDataParallel, AGroupOfOneLeavesGradientsAlone) {
  Linear net(LinearOptions(1, 1).bias(false));
  DistributedDataParallel model(net, ProcessGroup());
  model(constant({1, 1}, 3)).sum().backward();
  EXPECT_EQ(net->weight.grad().item<float>(), 3);
  EXPECT_EQ(model.communication_seconds(), 0);
}

}  // namespace
}  // namespace lockstep
