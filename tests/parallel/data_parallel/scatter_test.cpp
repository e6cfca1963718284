#include "lockstep/parallel/data_parallel/scatter.h"

#include <gmock/gmock.h>
#include <map>
#include <string>
#include <tuple>
#include <unordered_map>
#include <utility>
#include <vector>

#include "tests/support/places.h"
#include <ATen/ops/arange.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <torch/nn/cloneable.h>

#include "lockstep/core/error.h"
#include "lockstep/parallel/data_parallel.h"

namespace lockstep {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;
using torch::Tensor;

TEST(ChunkSizes, AreThoseOfTorchChunkR2) {
  EXPECT_THAT(data_parallel::chunk_sizes(10, 2), ElementsAre(5, 5));
  EXPECT_THAT(data_parallel::chunk_sizes(7, 3), ElementsAre(3, 3, 1));
  EXPECT_THAT(data_parallel::chunk_sizes(5, 4), ElementsAre(2, 2, 1));
  EXPECT_THAT(data_parallel::chunk_sizes(2, 4), ElementsAre(1, 1));
  EXPECT_THAT(data_parallel::chunk_sizes(0, 2), ElementsAre(0));
  for (std::int64_t batch = 1; batch < 30; ++batch) {
    for (std::int64_t count = 1; count < 10; ++count) {
      std::vector<std::int64_t> expected;
      for (const auto& piece : at::ones({batch}).chunk(count)) expected.push_back(piece.size(0));
      EXPECT_EQ(data_parallel::chunk_sizes(batch, static_cast<std::size_t>(count)), expected);
    }
  }
}

TEST(DivideElements, CutsTensorsWhereSharesEnd) {
  using data_parallel::Stretch;
  EXPECT_THAT(data_parallel::divide_elements({3, 5}, 2),
      ElementsAre(ElementsAre(Stretch{0, 0, 3}, Stretch{1, 0, 1}), ElementsAre(Stretch{1, 1, 4})));
  EXPECT_THAT(data_parallel::divide_elements({1}, 2),
      ElementsAre(ElementsAre(), ElementsAre(Stretch{0, 0, 1})));
}

/// Returns its input, and counts the calls of each replica.
template <typename Value>
class EchoImpl : public torch::nn::Cloneable<EchoImpl<Value>> {
 public:
  void reset() override {}
  Value forward(const Value& value) { return value; }
};

template <typename Value>
Value echo(const Value& value, int places = 2) {
  DataParallel model(std::make_shared<EchoImpl<Value>>(), testing::places(places));
  return model(value);
}

TEST(Scatter, GivesEachReplicaItsPieceAndGatherIsTheInverseR2) {
  struct SumImpl : torch::nn::Cloneable<SumImpl> {
    void reset() override {}
    std::pair<Tensor, Tensor> forward(const Tensor& input) {
      return {at::full({1}, static_cast<double>(input.size(0))), input * 2};
    }
  };
  DataParallel model(std::make_shared<SumImpl>(), testing::places(2));
  auto input = at::ones({10}).requires_grad_();
  const auto [sizes, doubled] = model(input);
  EXPECT_TRUE(sizes.equal(at::full({2}, 5.0)));
  EXPECT_TRUE(doubled.equal(at::full({10}, 2.0)));
  doubled.backward(at::full({10}, 0.5));
  EXPECT_DOUBLE_EQ(input.grad().sum().item<double>(), 10);
}

TEST(Scatter, KeepsTheStructureOfNestedValuesR2) {
  using Value = std::tuple<std::vector<Tensor>, std::map<std::string, std::pair<Tensor, int>>,
      std::unordered_map<std::string, Tensor>, std::optional<Tensor>, std::string>;
  const auto numbers = at::arange(10);
  const Value value{{numbers, numbers * 2}, {{"a", {numbers * 3, 4}}}, {{"x", numbers * 5}},
      std::nullopt, "kept"};
  const Value back = echo(value);
  EXPECT_TRUE(same_structure(back, value));
  const auto actual = lockstep::flatten(back), expected = lockstep::flatten(value);
  for (std::size_t i = 0; i < expected.size(); ++i) EXPECT_TRUE(actual[i].equal(expected[i]));
}

TEST(Scatter, UsesOnlyAsManyReplicasAsSamplesR2) {
  struct CountImpl : torch::nn::Cloneable<CountImpl> {
    void reset() override {}
    Tensor forward(const Tensor& input) { return input.sum(); }
  };
  DataParallel model(std::make_shared<CountImpl>(), testing::places(4));
  EXPECT_EQ(model(at::ones({9})).sizes(), (std::vector<std::int64_t>{3}));
  EXPECT_EQ(model(at::ones({3})).sizes(), (std::vector<std::int64_t>{3}));
  EXPECT_EQ(model(at::ones({1})).sizes(), (std::vector<std::int64_t>{1}));
  EXPECT_EQ(model(at::ones({0})).sizes(), (std::vector<std::int64_t>{1}));
}

TEST(Scatter, GathersNumbersToAVectorAndLeavesThemAloneOnOnePlaceR2) {
  struct MeanImpl : torch::nn::Cloneable<MeanImpl> {
    void reset() override {}
    Tensor forward(const Tensor& input) { return input.mean(); }
  };
  auto input = at::arange(6, torch::kDouble).requires_grad_();
  DataParallel two(std::make_shared<MeanImpl>(), testing::places(2));
  const auto means = two(input);
  EXPECT_TRUE(means.equal(testing::here(torch::tensor({1.0, 4.0}, torch::kDouble))));
  (means * testing::here(torch::tensor({3.0, 6.0}, torch::kDouble))).sum().backward();
  EXPECT_TRUE(input.grad().equal(
      testing::here(torch::tensor({1.0, 1.0, 1.0, 2.0, 2.0, 2.0}, torch::kDouble))));
  DataParallel one(std::make_shared<MeanImpl>(), testing::places(1));
  EXPECT_EQ(one(input).dim(), 0);
}

TEST(Scatter, GivesPlainValuesToAllAndChecksThatResultsAgree) {
  struct PlainImpl : torch::nn::Cloneable<PlainImpl> {
    void reset() override {}
    std::pair<Tensor, std::int64_t> forward(const Tensor& input, bool shape) {
      return {input, shape ? input.size(0) : 7};
    }
  };
  DataParallel model(std::make_shared<PlainImpl>(), testing::places(2));
  EXPECT_EQ(model(at::ones({3}), false).second, 7);
  EXPECT_EQ(model(at::ones({4}), true).second, 2);
  EXPECT_THAT([&] { model(at::ones({3}), true); },
      ThrowsMessage<InvalidArgument>(HasSubstr("different structures or plain values")));
}

TEST(Scatter, RefusesInputsThatDoNotDivideAlike) {
  EXPECT_THAT(
      [] {
        echo(std::vector<Tensor>{at::ones({4}), at::ones({1})});
      },
      ThrowsMessage<InvalidArgument>(
          HasSubstr("tensor 0 has 4 samples in 2 pieces, tensor 1 has 1 in 1")));
  EXPECT_THAT(
      [] {
        echo(std::vector<Tensor>{at::ones({4}), at::ones({})});
      },
      ThrowsMessage<InvalidArgument>(HasSubstr("tensor 1 of the inputs has no dimension")));
}

TEST(Gather, PutsOutputsWhereTheyAreRequestedR1) {
  const auto echo_of_tensors = std::make_shared<EchoImpl<Tensor>>();
  const auto options = DataParallelOptions().output_place(Place{torch::kMeta});
  DataParallel elsewhere(echo_of_tensors, testing::places(2), options);
  EXPECT_TRUE(elsewhere(at::ones({4})).is_meta());
  EXPECT_TRUE(elsewhere(at::ones({1})).is_meta());  // by one replica alone
  DataParallel first(echo_of_tensors, testing::places(2));
  EXPECT_TRUE(first(at::ones({4})).is_cpu());
}

TEST(Scatter, PassesUndefinedTensorsOn) {
  const auto back = echo(std::vector<Tensor>{Tensor(), at::arange(4)});
  EXPECT_FALSE(back[0].defined());
  EXPECT_TRUE(back[1].equal(at::arange(4)));
}

}  // namespace
}  // namespace lockstep
