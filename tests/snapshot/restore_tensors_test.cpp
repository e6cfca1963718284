#include "lockstep/snapshot/restore_tensors.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <string>

#include "tests/snapshot/snapshot_fixtures.h"
#include "tests/support/message_of.h"
#include <torch/types.h>

#include "lockstep/core/error.h"

namespace lockstep {
namespace {

using testing::copy_of;
using testing::expect_same_bits;
using ::testing::HasSubstr;
using testing::SmallNet;

TEST(RestoreTensors, ListsAllAndChangesNothing) {
  SmallNet net;
  const auto target = nn::named_state(*net);
  auto saved = copy_of(target);
  for (auto& item : saved) item.value().fill_(1);
  saved.erase("fc.bias");
  saved["fc.weight"] = torch::ones({2, 26});
  saved["norm.bias"] = torch::ones({3}, torch::kDouble);
  saved.insert("more", torch::ones({1}));
  const auto before = copy_of(target);
  const auto text = testing::message_of<DataError>([&] { restore_tensors(target, saved, "here"); });
  for (const char* part : {"here: ", "missing: fc.bias", "fc.weight: float32 (2, 26) was saved",
           "norm.bias: float64 (3)", "unexpected: more"}) {
    EXPECT_THAT(text, HasSubstr(part));
  }
  expect_same_bits(target, before);
}

TEST(RestoreTensors, SkipsOtherStagesOnlyIfAskedAndKeepsMemoryFormats) {
  SmallNet from, to;
  auto saved = copy_of(nn::named_state(*from));
  for (auto& item : saved) item.value().fill_(3);
  saved.insert("another.stage", torch::ones({1}));
  const auto target = nn::named_state(*to);
  EXPECT_THROW(restore_tensors(target, saved, "here"), DataError);
  const auto strides = target["conv.weight"].strides().vec();
  restore_tensors(target, saved, "here", Others::kSkipped);
  EXPECT_EQ(target["conv.weight"].strides(), torch::IntArrayRef(strides));
  EXPECT_TRUE(target["conv.weight"].eq(3).all().item<bool>());
  EXPECT_TRUE(target["conv.weight"].requires_grad());
}

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
