#include "lockstep/train/evaluate.h"

#include <algorithm>
#include <cmath>
#include <fstream>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <limits>
#include <memory>
#include <utility>

#include "tests/support/message_of.h"
#include "tests/support/temporary_folder.h"
#include <ATen/ops/full.h>
#include <ATen/ops/one_hot.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/zeros.h>

#include "lockstep/comm/process_group.h"
#include "lockstep/core/error.h"
#include "lockstep/data/batch.h"
#include "lockstep/data/distributed_sampler.h"
#include "lockstep/data/image_samples.h"
#include "lockstep/nn/weights.h"
#include "lockstep/train/options/run_configuration.h"
#include "lockstep/train/task/classification.h"

namespace lockstep {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using testing::message_of;

// Images of one pixel whose value, 0 to 9, says the class that `forward` answers with.
data::InMemoryImages answers(std::vector<std::uint8_t> pixels, std::vector<std::uint8_t> labels) {
  return data::InMemoryImages({.name = "answers",
      .shape = {.channels = 1, .height = 1, .width = 1},
      .classes = 10,
      .pixels = std::move(pixels),
      .labels = std::move(labels)});
}

const LoaderOptions kUnscaled = {.normalization = {.mean = {0.0F}, .std = {1.0F / 255}}};

// One rank's share, in batches of so many.
Loader share_of(
    const data::InMemoryImages& images, const ProcessGroup& world, std::int64_t batch = 2) {
  const DistributedSampler sampler(images.size(), world, {.shuffle = false, .padding = false});
  return {images, sampler.epoch(0), batch, kUnscaled};
}

torch::Tensor forward(const Batch& batch) {
  return at::one_hot(batch.input().flatten().round().to(torch::kLong), 10).to(torch::kFloat) * 20;
}

TEST(Evaluate, CountsEachImageOnceWhateverTheRanks) {
  // 7 images, 4 of them right; no number of ranks but 1 and 7 deals them out evenly.
  const auto images = answers({0, 1, 2, 3, 4, 5, 6}, {0, 1, 2, 3, 9, 9, 9});
  for (int ranks = 1; ranks <= 4; ++ranks) {
    run_ranks(ranks, [&images](ProcessGroup world) {
      const auto result =
          evaluate(forward, share_of(images, world), world, Classification()).value();
      EXPECT_EQ(result.samples, 7);
      EXPECT_DOUBLE_EQ(result.scores.top1.value(), 4.0 / 7);
      EXPECT_NEAR(result.scores.loss.value(), 3 * 20.0 / 7, 1e-5);
    });
  }
}

// The highest scores go to the answer and the classes after it.
torch::Tensor five_answers(const Batch& batch) {
  const torch::Tensor answer = batch.input().flatten().round().to(torch::kLong);
  torch::Tensor scores = at::zeros({answer.size(0), 10}, torch::kFloat);
  for (std::int64_t place = 0; place < 5; ++place)
    scores += at::one_hot((answer + place) % 10, 10) * (10 - place);
  return scores;
}

TEST(Evaluate, CountsARightAnswerAmongTheFiveHighestScores) {
  // Off by 0, 1, 4, 5 and 9 classes: three are among the five, one is the highest.
  const auto images = answers({0, 1, 2, 3, 4}, {0, 2, 6, 8, 3});
  for (int ranks = 1; ranks <= 3; ++ranks) {
    run_ranks(ranks, [&images](ProcessGroup world) {
      const auto result =
          evaluate(five_answers, share_of(images, world), world, Classification()).value();
      EXPECT_DOUBLE_EQ(result.scores.top1.value(), 0.2);
      ASSERT_TRUE(result.scores.top5);
      EXPECT_DOUBLE_EQ(*result.scores.top5, 0.6);
      EXPECT_EQ(value_of(result.scores, "top1"), *result.scores.top1);
      EXPECT_EQ(value_of(result.scores, "top5"), *result.scores.top5);
      EXPECT_EQ(value_of(result.scores, "loss"), *result.scores.loss);
    });
  }
}

TEST(Evaluate, KnowsThatARankWithoutImagesHasFiveHighestScoresToo) {
  const auto images = answers({0, 1}, {0, 2});
  run_ranks(3, [&images](ProcessGroup world) {
    const auto result =
        evaluate(five_answers, share_of(images, world), world, Classification()).value();
    ASSERT_TRUE(result.scores.top5) << "on rank " << world.rank();
    EXPECT_DOUBLE_EQ(*result.scores.top5, 1);
  });
}

TEST(Evaluate, FiveClassesHaveNoFiveHighestScores) {
  const auto images = answers({0, 1}, {0, 1});
  const Loader share(images, {0, 1}, 2, kUnscaled);
  const auto few = [](const Batch& batch) { return forward(batch).slice(1, 0, 5).contiguous(); };
  const auto result = evaluate(few, share, ProcessGroup(), Classification()).value();
  EXPECT_FALSE(result.scores.top5);
  EXPECT_EQ(value_of(result.scores, "top5"), 1) << "that of the highest score";
}

// Marks the last image of each batch as one that could not be read.
class LastUnreadable final : public data::Samples {
 public:
  explicit LastUnreadable(data::StoredSamples samples) : samples_(std::move(samples)) {}
  std::int64_t size() const override { return samples_.size(); }
  std::int64_t classes() const override { return samples_.classes(); }
  data::ImageShape shape() const override { return samples_.shape(); }
  std::string name(std::int64_t index) const override { return samples_.name(index); }
  void read(std::span<const data::SampleKey> keys, const Batch& out) const override {
    samples_.read(keys, out);
    out.target()[-1].fill_(kIgnoredTarget);
  }

 private:
  data::StoredSamples samples_;
};

TEST(Evaluate, LeavesOutWhatIsMarkedToBeIgnored) {
  const data::StoredSamples images(answers({0, 1, 2}, {0, 9, 2}), kUnscaled.normalization);
  const Loader share(std::make_shared<LastUnreadable>(images), {0, 1, 2}, 3);
  const auto result = evaluate(forward, share, ProcessGroup(), Classification()).value();
  EXPECT_EQ(result.samples, 2);
  EXPECT_DOUBLE_EQ(result.scores.top1.value(), 0.5);
  EXPECT_NEAR(result.scores.loss.value(), 20.0 / 2, 1e-5);
  EXPECT_DOUBLE_EQ(
      evaluate(five_answers, share, ProcessGroup(), Classification())->scores.top5.value(), 0.5);
}

TEST(Evaluate, IsLeftByAllRanksAfterTheBatchThatTheyAgreeOn) {
  const auto images = answers({0, 1, 2, 3, 4, 5, 6}, {0, 1, 2, 3, 4, 5, 6});
  run_ranks(2, [&images](ProcessGroup world) {
    const Loader share = share_of(images, world, 1);
    int batches = 0;
    EXPECT_FALSE(evaluate(forward, share, world, Classification(), [&] { return ++batches == 2; }));
    EXPECT_EQ(batches, 2);
    const auto whole = evaluate(forward, share, world, Classification(), [] { return false; });
    ASSERT_TRUE(whole) << "the group is as it was";
    EXPECT_EQ(whole->samples, 7);
  });
}

TEST(Evaluate, LeavesNoGraphBehind) {
  const auto images = answers({0, 1}, {0, 1});
  torch::Tensor weight = at::zeros({1}, torch::kFloat).requires_grad_();
  const Loader share(images, {0, 1}, 2, kUnscaled);
  const auto result = evaluate(
      [&weight](const Batch& batch) {
        torch::Tensor scores = forward(batch) + weight;
        EXPECT_FALSE(scores.requires_grad());
        return scores;
      },
      share, ProcessGroup(), Classification())
                          .value();
  EXPECT_EQ(result.samples, 2);
}

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
  TrainOptions expected;
  expected.model = "toy";
  expected.data = {.name = "mock", .directory = ""};
  expected.loading.val_split = 0.25;
  expected.loading.bad_images = BadImages::kSkip;
  expected.batch_size = 32;
  expected.precision = Precision::kBf16Mixed;
  expected.seed = 7;  // draws what --val-split holds out
  expected.loss = "mse";
  TrainOptions run = expected;
  run.loading.augment = Augment::kCropFlip;
  run.parallel = Parallel::kDp;
  run.pretrained = "w.pth";
  run.freeze = {"*"};
  std::ofstream(folder_.file("config.toml")) << config_toml(run);
  EXPECT_EQ(config_toml(evaluation_options(options_of_run(folder_.str()))), config_toml(expected));
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
  Predictions predictions(kClasses, 12, std::make_shared<Classification>());
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
  Predictions predictions(kClasses, 0, std::make_shared<Classification>());
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
  Predictions predictions(3, 9, std::make_shared<Classification>());
  const torch::Tensor labels = at::full({3}, 1, torch::kLong);
  labels[1] = kIgnoredTarget;
  predictions.add(at::zeros({3, 3}), labels);
  ASSERT_EQ(predictions.worst().size(), 2U);
  EXPECT_EQ(predictions.worst()[0].index, 0) << "of equal ones the first";
  EXPECT_EQ(predictions.worst()[1].index, 2);
  EXPECT_EQ(predictions.confusion().of_class()[1].samples, 2);
}

TEST(Predictions, ALossThatIsNoNumberIsTheWorst) {
  Predictions predictions(2, 1, std::make_shared<Classification>());
  const torch::Tensor scores = at::zeros({3, 2});
  scores[0][0] = 9;
  scores[2][0] = std::numeric_limits<float>::quiet_NaN();
  predictions.add(scores, at::full({3}, 1, torch::kLong));
  EXPECT_EQ(predictions.worst().front().index, 2);
  EXPECT_TRUE(std::isnan(predictions.worst().front().loss));
}

}  // namespace
}  // namespace lockstep
