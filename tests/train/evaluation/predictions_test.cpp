#include "lockstep/train/evaluation/predictions.h"

#include <algorithm>
#include <cmath>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <limits>

#include <ATen/ops/full.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/zeros.h>

#include "lockstep/data/batch.h"

namespace lockstep {
namespace {

using ::testing::ElementsAre;

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
