// Sparse gradients: cases B6 and D13 of the conformance list.
// Models of several element types, and autocast: case D14 of the conformance list.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "replica_checks.h"
#include "tests/comm/group_factory.h"
#include "tests/support/message_of.h"
#include "tests/support/places.h"
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/embedding.h>
#include <torch/nn/modules/linear.h>

#include "lockstep/comm/process_group.h"
#include "lockstep/nn/autocast.h"
#include "lockstep/parallel/distributed_data_parallel.h"

namespace lockstep {
namespace {

using ::testing::HasSubstr;
using Options = DistributedDataParallelOptions;
using testing::constant;
using testing::expect_same_on_all_ranks;
using testing::make;
using testing::message_of;
using testing::with_replicas;
using torch::nn::Embedding;
using torch::nn::EmbeddingOptions;
using torch::nn::Linear;

struct WordsImpl : torch::nn::Module {
  explicit WordsImpl(bool sparse = true) {
    table = register_module("table", Embedding(EmbeddingOptions(10, 3).sparse(sparse)));
    head = register_module("head", Linear(3, 2));
    const torch::NoGradGuard no_grad;
    for (auto& parameter : parameters())
      parameter.copy_(torch::linspace(-1, 1, parameter.numel()).view(parameter.sizes()));
  }
  torch::Tensor forward(const torch::Tensor& words) { return head(table(words)); }
  Embedding table{nullptr};
  Linear head{nullptr};
};
TORCH_MODULE(Words);

// Other words, and another number of them, on every rank; some twice.
torch::Tensor words_of(int rank) {
  const std::vector<std::vector<std::int64_t>> words = {{1, 5, 1}, {5, 9}, {}, {0, 1, 2, 3, 9, 9}};
  return torch::tensor(words[static_cast<std::size_t>(rank)], torch::kLong);
}

torch::Tensor dense_gradient(const ProcessGroup& group, int step) {
  torch::Tensor sum;
  for (int rank = 0; rank < group.size(); ++rank) {
    Words net(false);
    (net->forward(words_of((rank + step) % group.size())).pow(2).sum()).backward();
    sum = sum.defined() ? sum + net->table->weight.grad() : net->table->weight.grad();
  }
  return sum / group.size();
}

TEST(SparseGradients, D13AreTheAverageWhateverRowsEachRankHas) {
  for (const int size : {2, 3, 4}) {
    testing::run_ranks(size, [](ProcessGroup group) {
      Words net;
      DistributedDataParallel model(net, group);
      for (int step = 0; step < 4; ++step) {
        net->zero_grad();
        model(words_of((group.rank() + step) % group.size())).pow(2).sum().backward();
        const torch::Tensor gradient = net->table->weight.grad();
        ASSERT_EQ(gradient.layout(), torch::kSparse);
        EXPECT_TRUE(gradient.is_coalesced());
        EXPECT_TRUE(torch::allclose(gradient.to_dense(), dense_gradient(group, step)));
        expect_same_on_all_ranks(gradient.values(), group);
        expect_same_on_all_ranks(net->head->weight.grad(), group);
      }
    });
  }
}

TEST(SparseGradients, D13ARankThatUsesNoneContributesNothing) {
  testing::run_ranks(2, [](ProcessGroup group) {
    Words net;
    DistributedDataParallel model(net, group, Options().find_unused_parameters(true));
    const torch::Tensor out = model(words_of(0));
    const torch::Tensor other = net->head->forward(torch::ones({1, 3}));
    (group.rank() == 0 ? out : other).sum().backward();
    const torch::Tensor gradient = net->table->weight.grad();
    ASSERT_TRUE(gradient.defined());
    EXPECT_EQ(gradient.indices().size(1), 2) << "words 1 and 5";
    expect_same_on_all_ranks(gradient.values(), group);

    net->zero_grad();
    model(words_of(0));
    net->head->forward(torch::ones({1, 3})).sum().backward();
    EXPECT_FALSE(net->table->weight.grad().defined()) << "no rank used it";
  });
}

TEST(SparseGradients, AccumulateLocallyAndAreAveragedLater) {
  with_replicas(2, make<Words>, {}, [](Words& net, auto& model, auto&) {
    {
      auto accumulate = model.no_sync();
      model(words_of(0)).sum().backward();
      model(words_of(1)).sum().backward();
    }
    model.reduce_accumulated();
    EXPECT_EQ(net->table->weight.grad().indices().size(1), 3) << "words 1, 5 and 9";
    Words expected(false);
    expected->forward(torch::cat({words_of(0), words_of(1)})).sum().backward();
    EXPECT_TRUE(
        torch::allclose(net->table->weight.grad().to_dense(), expected->table->weight.grad()));
  });
}

TEST(SparseGradients, B6ASparseGradientIsABucketOfItsOwn) {
  with_replicas(2, make<Words>, {}, [](Words&, auto& model, auto&) {
    const auto& buckets = model.reducer().buckets();
    ASSERT_EQ(buckets.size(), 2u);
    EXPECT_EQ(buckets[0].parameters, (std::vector<std::size_t>{0}));
    EXPECT_EQ(buckets[0].limit, 0u);
    EXPECT_EQ(buckets[1].parameters, (std::vector<std::size_t>{2, 1}));
  });
}

TEST(SparseGradients, ADenseOneWhereASparseOneWasExpectedIsAnError) {
  with_replicas(2, make<Words>, {}, [](Words& net, auto& model, auto&) {
    const std::string text = message_of<std::exception>(
        [&] { (model(words_of(0)).sum() + net->table->weight.sum()).backward(); });
    EXPECT_THAT(
        text, HasSubstr("the gradient of table.weight is dense, but expected to be sparse"));
  });
}

TEST(SparseGradients, HooksAverageTheDenseBucketsOnly) {
  testing::run_ranks(2, [](ProcessGroup group) {
    Words net;
    DistributedDataParallel model(net, group, Options().comm_hook([](const GradientBucket& bucket) {
      EXPECT_TRUE(bucket.is_last);
      EXPECT_EQ(bucket.parameters.size(), 2u);
      return all_reduce_hook(bucket);
    }));
    for (int step = 0; step < 2; ++step) {
      net->zero_grad();
      model(words_of(group.rank())).pow(2).sum().backward();
      EXPECT_TRUE(torch::allclose(net->table->weight.grad().to_dense(), dense_gradient(group, 0)));
    }
  });
}

TEST(MixedTypes, ParametersOfSeveralTypesAreAveragedEachInItsOwn) {
  testing::run_ranks(3, [](ProcessGroup group) {
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
      const nn::Autocast autocast(testing::this_device().type(), at::kBFloat16);
      loss = model(input).to(torch::kFloat).pow(2).mean();
    }
    loss.backward();
  };
  const torch::Tensor inputs = torch::cos(torch::arange(24 * 7)).view({24, 7});
  auto whole = make_net();
  auto forward = [&](const torch::Tensor& input) { return whole->forward(input); };
  step(forward, inputs);
  testing::run_ranks(2, [&](ProcessGroup group) {
    auto net = make_net();
    DistributedDataParallel model(net, group);
    step(model,
        testing::here(inputs.chunk(group.size(), 0)[static_cast<std::size_t>(group.rank())]));
    const auto parameters = net->parameters(), expected = whole->parameters();
    for (std::size_t i = 0; i < parameters.size(); ++i) {
      EXPECT_TRUE(torch::allclose(parameters[i].grad().cpu(), expected[i].grad().cpu(), 1e-3, 1e-3))
          << i;
      expect_same_on_all_ranks(parameters[i].grad(), group);
    }
  });
}

}  // namespace
}  // namespace lockstep
