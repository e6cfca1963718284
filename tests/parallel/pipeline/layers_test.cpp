#include "lockstep/parallel/pipeline/layers.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "serial_reference.h"
#include "tests/support/message_of.h"

namespace lockstep {
namespace {

using ::testing::HasSubstr;

std::string refusal_of_cut(const Layers& layers, const std::vector<int>& balance) {
  return testing::message_of<InvalidArgument>([&] { cut(layers, balance); });
}

TEST(Layers, AreNamedAsTheChildrenOfASequential) {
  const auto layers = layers_of(testing::make_chain({2, 3, 4}));
  EXPECT_THAT(layers.keys(), ::testing::ElementsAre("0", "1", "2"));
}

TEST(Layers, P8WrongBalanceIsRefusedWithAdvice) {
  const auto layers = layers_of(testing::make_chain({2, 3, 4}));
  EXPECT_THAT(refusal_of_cut(layers, {1, 1}), HasSubstr("adds up to 2 layers, the model has 3"));
  EXPECT_THAT(refusal_of_cut(layers, {1, 1}), HasSubstr("balance_by_time"));
  EXPECT_THAT(
      refusal_of_cut(layers, {3, 0}), HasSubstr("every stage needs at least 1 layer, one has 0"));
  EXPECT_THAT(
      refusal_of_cut(layers, {4, -1}), HasSubstr("every stage needs at least 1 layer, one has -1"));
  EXPECT_THAT(refusal_of_cut(layers, {}), HasSubstr("there is no stage"));
}

TEST(Layers, P8LayerTwiceIsRefused) {
  const torch::nn::Linear layer(2, 2);
  Layers layers;
  layers.insert("first", torch::nn::AnyModule(layer));
  layers.insert("second", torch::nn::AnyModule(layer));
  EXPECT_THAT(
      refusal_of_cut(layers, {1, 1}), HasSubstr("layer second is the same module as layer first"));
}

TEST(Layers, P8ParameterInTwoStagesIsRefusedInOneIsNot) {
  torch::nn::Linear first(2, 2), second(2, 2);
  second->weight = second->register_parameter("shared", first->weight);
  Layers layers;
  layers.insert("first", torch::nn::AnyModule(first));
  layers.insert("second", torch::nn::AnyModule(second));
  EXPECT_THAT(refusal_of_cut(layers, {1, 1}), HasSubstr("second.shared in stage 1"));
  EXPECT_EQ(cut(layers, {2}).size(), 1U);
}

TEST(Layers, ParametersAreListedOnce) {
  const auto net = testing::make_chain({2, 3, 4});
  EXPECT_EQ(parameters_of(layers_of(net)).size(), 4U);
}

}  // namespace
}  // namespace lockstep
