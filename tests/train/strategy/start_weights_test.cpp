#include "lockstep/train/strategy/start_weights.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <torch/utils.h>

#include "lockstep/core/error.h"
#include "lockstep/nn/weights.h"

#include "tests/support/temporary_folder.h"

namespace lockstep {
namespace {

using ::testing::HasSubstr;

class StartWeightsTest : public ::testing::Test {
 protected:
  StartWeightsTest() {
    torch::manual_seed(2);
    options_.pretrained = folder_.str() + "/w.safetensors";
  }

  testing::TemporaryFolder folder_;
  TrainOptions options_;
};

TEST_F(StartWeightsTest, AreTakenWhole) {
  auto saved = nn::make_model("toy", 5), model = nn::make_model("toy", 5);
  nn::save_weights(*saved, options_.pretrained);
  const StartWeights start = start_with(model, options_);
  EXPECT_EQ(start.remark, "4 tensors from " + options_.pretrained);
  EXPECT_EQ(start.warning, "");
  for (const auto& item : nn::named_state(*model)) {
    EXPECT_TRUE(item.value().equal(nn::named_state(*saved)[item.key()])) << item.key();
  }
}

TEST_F(StartWeightsTest, OfOtherClassesLeaveTheHeadFreshAndSaySo) {
  auto saved = nn::make_model("resnet18-cifar", 10), model = nn::make_model("resnet18-cifar", 20);
  const auto fresh = nn::named_state(*model)["fc.weight"].detach().clone();
  nn::save_weights(*saved, options_.pretrained);
  const StartWeights start = start_with(model, options_);
  EXPECT_EQ(
      start.warning,
      "weights of " + options_.pretrained +
          ":\n"
          "  kept the model's fc.weight: here [20, 512] float32, in the file [10, 512] float32\n"
          "  kept the model's fc.bias: here [20] float32, in the file [10] float32");
  EXPECT_TRUE(nn::named_state(*model)["fc.weight"].equal(fresh));
  EXPECT_TRUE(
      nn::named_state(*model)["conv1.weight"].equal(nn::named_state(*saved)["conv1.weight"]));
}

TEST_F(StartWeightsTest, OfAnotherModelAreRefused) {
  auto saved = nn::make_model("toy", 5), model = nn::make_model("mnist-small", 5);
  nn::save_weights(*saved, options_.pretrained);
  try {
    start_with(model, options_);
    FAIL();
  } catch (const DataError& error) {
    EXPECT_THAT(error.what(), HasSubstr("missing in the file: 0.weight"));
    EXPECT_THAT(error.what(), HasSubstr("not in the model: net1.weight"));
  }
}

TEST_F(StartWeightsTest, AreFrozenAfterTheyAreRead) {
  auto model = nn::make_model("resnet18-cifar", 5);
  nn::save_weights(*model, options_.pretrained);
  options_.freeze = {"bn1.*", "conv1.*"};
  const StartWeights start = start_with(model, options_);
  EXPECT_THAT(
      start.remark,
      HasSubstr("; frozen: 3 of 62 parameters (1856 numbers) and the statistics of 1 batch norms"));
  EXPECT_FALSE(model->parameters()[0].requires_grad());
}

TEST_F(StartWeightsTest, NeedNothing) {
  auto model = nn::make_model("toy", 5);
  const StartWeights start = start_with(model, TrainOptions());
  EXPECT_EQ(start.remark + start.warning, "");
}

}  // namespace
}  // namespace lockstep
