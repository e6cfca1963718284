#include "lockstep/snapshot/restore_tensors.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <string>

#include "tests/support/message_of.h"
#include "tests/train/snapshot/training_steps.h"
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

}  // namespace
}  // namespace lockstep
