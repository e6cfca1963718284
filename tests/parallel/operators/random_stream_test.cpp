#include "lockstep/parallel/operators/random_stream.h"

#include <thread>

#include <gtest/gtest.h>

#include <ATen/CPUGeneratorImpl.h>
#include <torch/nn/modules/dropout.h>

namespace lockstep {
namespace {

at::Generator generator_of(std::uint64_t seed) {
  return at::make_generator<at::CPUGeneratorImpl>(seed);
}

torch::Tensor dropped(std::uint64_t seed) {
  const RandomStream stream(generator_of(seed));
  torch::nn::Dropout dropout(0.5);
  return dropout(torch::ones({1000}));
}

TEST(RandomStream, GivesTheSameDropoutForTheSameSeed) {
  const auto first = dropped(1);
  torch::randn({17});
  EXPECT_TRUE(torch::equal(dropped(1), first));
  EXPECT_FALSE(torch::equal(dropped(2), first));
}

TEST(RandomStream, LeavesTheCommonGeneratorAlone) {
  torch::manual_seed(5);
  const auto expected = torch::randn({8});
  torch::manual_seed(5);
  dropped(1);
  EXPECT_TRUE(torch::equal(torch::randn({8}), expected));
}

TEST(RandomStream, DrawsWhatTheGeneratorGives) {
  auto generator = generator_of(3);
  const auto expected = torch::randn({8}, generator);
  const RandomStream stream(generator_of(3));
  EXPECT_TRUE(torch::equal(torch::randn({8}), expected));
}

TEST(RandomStream, LeavesNamedGeneratorsAlone) {
  const auto expected = torch::randn({8}, generator_of(9));
  const RandomStream stream(generator_of(3));
  EXPECT_TRUE(torch::equal(torch::randn({8}, generator_of(9)), expected));
}

TEST(RandomStream, NestsAndBelongsToItsThread) {
  auto outer = generator_of(1);
  const RandomStream stream(outer);
  const auto before = outer.get_state();
  {
    const RandomStream inner(generator_of(2));
    torch::randn({8});
  }
  std::thread([] { torch::randn({8}); }).join();
  EXPECT_TRUE(torch::equal(outer.get_state(), before));
  torch::randn({8});
  EXPECT_FALSE(torch::equal(outer.get_state(), before));
}

}  // namespace
}  // namespace lockstep
