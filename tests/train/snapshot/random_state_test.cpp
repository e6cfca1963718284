#include <gtest/gtest.h>

#include "tests/train/snapshot/training_steps.h"
#include <torch/types.h>

#include "lockstep/core/error.h"
#include "lockstep/snapshot/restore_tensors.h"

namespace lockstep {
namespace {

using testing::expect_same_bits;

TEST(RandomState, TheSameNumbersFollow) {
  torch::manual_seed(3);
  (void)torch::randn({5});  // half of a pair of normal numbers is left for the next call
  const auto state = random_state();
  ASSERT_EQ(state.keys(), std::vector<std::string>{"generator/cpu"});
  EXPECT_EQ(state["generator/cpu"].scalar_type(), torch::kByte);
  const auto expected = torch::randn({7});
  torch::manual_seed(4);
  EXPECT_TRUE(restore_random_state(state).empty());
  expect_same_bits(torch::randn({7}), expected);
  (void)restore_random_state(state);  // what was given is not used up
  expect_same_bits(torch::randn({7}), expected);
}

TEST(RandomState, NamesWhatWasNotSavedAndLeavesItAlone) {
  torch::manual_seed(3);
  const auto expected = random_state();
  nn::NamedTensors none("Tensor");
  none.insert("losses", torch::zeros({2}));
  const auto absent = restore_random_state(none, {torch::kCPU});
  EXPECT_EQ(absent, std::vector<torch::Device>{torch::kCPU});
  expect_same_bits(random_state(), expected);
}

TEST(RandomState, RefusesWhatIsNoState) {
  for (const auto& bad :
      {torch::zeros({10}, torch::kByte), torch::zeros({5056}), torch::zeros({0}, torch::kByte)}) {
    nn::NamedTensors state("Tensor");
    state.insert("generator/cpu", bad);
    EXPECT_THROW((void)restore_random_state(state), DataError);
  }
}

}  // namespace
}  // namespace lockstep
