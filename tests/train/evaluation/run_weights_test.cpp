#include "lockstep/train/evaluation/run_weights.h"

#include <fstream>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/message_of.h"
#include "tests/support/temporary_folder.h"
#include <ATen/ops/zeros.h>

#include "lockstep/core/error.h"
#include "lockstep/nn/weights.h"
#include "lockstep/train/options/run_configuration.h"

namespace lockstep {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using testing::message_of;

class RunWeights : public ::testing::Test {
 protected:
  void save(const std::string& name, const std::map<std::string, std::string>& metadata) const {
    nn::NamedTensors weights("Tensor");
    weights.insert("0.weight", at::zeros({2}));
    nn::save_weights(weights, folder_.file(name), metadata);
  }

  std::string refusal(std::optional<Which> which) const {
    return message_of<DataError>([&] { weights_of_run(folder_.str(), which); });
  }

  testing::TemporaryFolder folder_;
};

TEST_F(RunWeights, TheBestComeFirstThenTheLast) {
  save("model.safetensors", {{"step", "40"}});
  EXPECT_EQ(weights_of_run(folder_.str(), std::nullopt).which, "last");
  EXPECT_THAT(refusal(Which::kBest), HasSubstr("has no best.safetensors"));
  save("best.safetensors", {{"epoch", "3"}, {"loss", "0.5"}});
  const WeightsSource best = weights_of_run(folder_.str(), std::nullopt);
  EXPECT_EQ(best.file, folder_.file("best.safetensors"));
  EXPECT_EQ(best.which, "best");
  EXPECT_EQ(best.remark, "epoch 3, loss 0.5");
  const WeightsSource last = weights_of_run(folder_.str(), Which::kLast);
  EXPECT_EQ(last.file, folder_.file("model.safetensors"));
  EXPECT_EQ(last.remark, "step 40");
}

TEST_F(RunWeights, ARunWithoutWeightsSaysWhenItHasSome) {
  EXPECT_THAT(refusal(std::nullopt),
      AllOf(HasSubstr(folder_.str() + ": has neither best.safetensors nor model.safetensors"),
          HasSubstr("--weights")));
  EXPECT_THAT(refusal(Which::kLast), HasSubstr("has no model.safetensors"));
}

TEST_F(RunWeights, DamagedWeightsAreRefused) {
  std::ofstream(folder_.file("best.safetensors")) << "no weights";
  EXPECT_THAT(refusal(std::nullopt), HasSubstr("best.safetensors"));
}

TEST_F(RunWeights, WhatIsNoRunIsRefused) {
  const auto said = [](const std::string& folder) {
    return message_of<DataError>([&] { options_of_run(folder); });
  };
  EXPECT_THAT(said(folder_.file("nowhere")), HasSubstr("there is no such folder"));
  EXPECT_THAT(said(folder_.str()), HasSubstr("holds no config.toml"));
}

TEST_F(RunWeights, AnEvaluationTakesWhatDecidesTheScoresAndNothingElse) {
  TrainOptions run;
  run.model = "toy";
  run.data = {.name = "mock", .directory = ""};
  run.loading.augment = Augment::kCropFlip;
  run.loading.val_split = 0.25;
  run.loading.bad_images = BadImages::kSkip;
  run.batch_size = 32;
  run.precision = Precision::kBf16Mixed;
  run.seed = 7;
  run.loss = "mse";
  run.parallel = Parallel::kDp;
  run.pretrained = "w.pth";
  run.freeze = {"*"};
  std::ofstream(folder_.file("config.toml")) << config_toml(run);
  const TrainOptions found = evaluation_options(options_of_run(folder_.str()));
  EXPECT_EQ(found.model, "toy");
  EXPECT_EQ(found.data.name, "mock");
  EXPECT_EQ(found.loading.augment, Augment::kNone);
  EXPECT_EQ(found.loading.val_split, 0.25);
  EXPECT_EQ(found.loading.bad_images, BadImages::kSkip);
  EXPECT_EQ(found.batch_size, 32);
  EXPECT_EQ(found.precision, Precision::kBf16Mixed);
  EXPECT_EQ(found.seed, 7) << "which draws what --val-split holds out";
  EXPECT_EQ(found.loss, "mse");
  EXPECT_EQ(found.parallel, Parallel::kSerial);
  EXPECT_EQ(found.pretrained, "");
  EXPECT_TRUE(found.freeze.empty());
}

}  // namespace
}  // namespace lockstep
