#include <algorithm>
#include <cmath>
#include <fstream>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <limits>

#include "tests/support/message_of.h"
#include "tests/support/temporary_folder.h"
#include <ATen/ops/full.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/zeros.h>

#include "lockstep/core/error.h"
#include "lockstep/data/batch.h"
#include "lockstep/nn/weights.h"
#include "lockstep/train/evaluation/evaluate_weights.h"
#include "lockstep/train/evaluation/run_weights.h"
#include "lockstep/train/options/run_configuration.h"

namespace lockstep {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
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

struct Expected {
  std::int64_t index, label, predicted;
  double loss;
};

// By the definition, a number at a time: no operator of LibTorch judges.
Expected judged(const torch::Tensor& scores, const torch::Tensor& labels, std::int64_t index) {
  const auto* row = scores.const_data_ptr<float>() + index * scores.size(1);
  const auto label = labels.const_data_ptr<std::int64_t>()[index];
  double sum = 0;
  for (std::int64_t i = 0; i < scores.size(1); ++i) sum += std::exp(double{row[i]});
  return {index, label, std::max_element(row, row + scores.size(1)) - row,
      std::log(sum) - double{row[label]}};
}

constexpr std::int64_t kSamples = 200, kClasses = 7;

class PredictionsOfNoise : public ::testing::Test {
 protected:
  void SetUp() override {
    torch::manual_seed(3);
    scores_ = at::randn({kSamples, kClasses}, torch::kFloat) * 3;
    labels_ = at::randint(kClasses, {kSamples}, torch::kLong);
    for (std::int64_t i = 0; i < kSamples; ++i) expected_.push_back(judged(scores_, labels_, i));
  }

  void add_in_batches(Predictions& predictions) const {
    constexpr std::int64_t kBatch = 33;
    for (std::int64_t first = 0; first < kSamples; first += kBatch) {
      const std::int64_t end = std::min(kSamples, first + kBatch);
      predictions.add(scores_.slice(0, first, end), labels_.slice(0, first, end));
    }
  }

  torch::Tensor scores_, labels_;
  std::vector<Expected> expected_;
};

TEST_F(PredictionsOfNoise, TheWorstAreThoseOfAllBatches) {
  Predictions predictions(kClasses, 12);
  add_in_batches(predictions);
  std::ranges::sort(expected_, std::greater<>(), &Expected::loss);
  ASSERT_EQ(predictions.worst().size(), 12U);
  for (std::size_t i = 0; i < 12; ++i) {
    const Judgement& worst = predictions.worst()[i];
    EXPECT_EQ(worst.index, expected_[i].index) << i;
    EXPECT_EQ(worst.label, expected_[i].label);
    EXPECT_EQ(worst.predicted, expected_[i].predicted);
    EXPECT_NEAR(worst.loss, expected_[i].loss, 1e-5);
  }
}

TEST_F(PredictionsOfNoise, TheConfusionHasEverySampleOnce) {
  Predictions predictions(kClasses, 0);
  add_in_batches(predictions);
  EXPECT_TRUE(predictions.worst().empty());
  Confusion own(kClasses);
  for (const Expected& sample : expected_) own.add(sample.label, sample.predicted);
  EXPECT_EQ(predictions.confusion().counts(), own.counts());
  std::int64_t samples = 0;
  for (const auto& of_class : predictions.confusion().of_class()) samples += of_class.samples;
  EXPECT_EQ(samples, kSamples);
}

TEST(Predictions, WhatIsToBeIgnoredKeepsTheNumbersOfTheOthers) {
  Predictions predictions(3, 9);
  const torch::Tensor labels = at::full({3}, 1, torch::kLong);
  labels[1] = kIgnoredTarget;
  predictions.add(at::zeros({3, 3}), labels);
  ASSERT_EQ(predictions.worst().size(), 2U);
  EXPECT_EQ(predictions.worst()[0].index, 0) << "of equal ones the first";
  EXPECT_EQ(predictions.worst()[1].index, 2);
  EXPECT_EQ(predictions.confusion().of_class()[1].samples, 2);
}

TEST(Predictions, ALossThatIsNoNumberIsTheWorst) {
  Predictions predictions(2, 1);
  const torch::Tensor scores = at::zeros({3, 2});
  scores[0][0] = 9;
  scores[2][0] = std::numeric_limits<float>::quiet_NaN();
  predictions.add(scores, at::full({3}, 1, torch::kLong));
  EXPECT_EQ(predictions.worst().front().index, 2);
  EXPECT_TRUE(std::isnan(predictions.worst().front().loss));
}

}  // namespace
}  // namespace lockstep
