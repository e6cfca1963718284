// Sparse gradients: cases B6 and D13 of the conformance list.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <torch/nn/modules/embedding.h>
#include <torch/nn/modules/linear.h>

#include "lockstep/comm/run_ranks.h"
#include "lockstep/parallel/distributed_data_parallel.h"

#include "replica_checks.h"

namespace lockstep {
namespace {

using ::testing::HasSubstr;
using torch::nn::Embedding;
using torch::nn::EmbeddingOptions;
using torch::nn::Linear;
using Options = DistributedDataParallelOptions;
using testing::error_of;
using testing::expect_same_on_all_ranks;

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
    run_ranks(size, [](ProcessGroup group) {
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
  run_ranks(2, [](ProcessGroup group) {
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
  run_ranks(2, [](ProcessGroup group) {
    Words net;
    DistributedDataParallel model(net, group);
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
  run_ranks(2, [](ProcessGroup group) {
    Words net;
    DistributedDataParallel model(net, group);
    const auto& buckets = model.reducer().buckets();
    ASSERT_EQ(buckets.size(), 2u);
    EXPECT_EQ(buckets[0].parameters, (std::vector<std::size_t>{0}));
    EXPECT_EQ(buckets[0].limit, 0u);
    EXPECT_EQ(buckets[1].parameters, (std::vector<std::size_t>{2, 1}));
  });
}

TEST(SparseGradients, ADenseOneWhereASparseOneWasExpectedIsAnError) {
  run_ranks(2, [](ProcessGroup group) {
    Words net;
    DistributedDataParallel model(net, group);
    const std::string text =
        error_of([&] { (model(words_of(0)).sum() + net->table->weight.sum()).backward(); });
    EXPECT_THAT(
        text, HasSubstr("the gradient of table.weight is dense, but expected to be sparse"));
  });
}

TEST(SparseGradients, HooksAverageTheDenseBucketsOnly) {
  run_ranks(2, [](ProcessGroup group) {
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

}  // namespace
}  // namespace lockstep
