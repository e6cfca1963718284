#include "lockstep/train/evaluate.h"

#include <cmath>
#include <gtest/gtest.h>
#include <memory>
#include <utility>

#include <ATen/ops/one_hot.h>
#include <ATen/ops/zeros.h>

#include "lockstep/comm/process_group.h"
#include "lockstep/data/distributed_sampler.h"
#include "lockstep/data/image_samples.h"

namespace lockstep {
namespace {

// Images of one pixel whose value, 0 to 9, says the class that `forward` answers with.
data::InMemoryImages answers(std::vector<std::uint8_t> pixels, std::vector<std::uint8_t> labels) {
  return data::InMemoryImages({.name = "answers",
      .shape = {.channels = 1, .height = 1, .width = 1},
      .classes = 10,
      .pixels = std::move(pixels),
      .labels = std::move(labels)});
}

const LoaderOptions kUnscaled = {.normalization = {.mean = {0.0F}, .std = {1.0F / 255}}};

torch::Tensor forward(const Batch& batch) {
  return at::one_hot(batch.input().flatten().round().to(torch::kLong), 10).to(torch::kFloat) * 20;
}

TEST(Evaluate, CountsEachImageOnceWhateverTheRanks) {
  // 7 images, 4 of them right; no number of ranks but 1 and 7 deals them out evenly.
  const auto images = answers({0, 1, 2, 3, 4, 5, 6}, {0, 1, 2, 3, 9, 9, 9});
  for (int ranks = 1; ranks <= 4; ++ranks) {
    run_ranks(ranks, [&images](ProcessGroup world) {
      const DistributedSampler sampler(images.size(), world, {.shuffle = false, .padding = false});
      const Loader share(images, sampler.epoch(0), 2, kUnscaled);
      const auto result = evaluate(forward, share, world, Loss()).value();
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
      const DistributedSampler sampler(images.size(), world, {.shuffle = false, .padding = false});
      const Loader share(images, sampler.epoch(0), 2, kUnscaled);
      const auto result = evaluate(five_answers, share, world, Loss()).value();
      EXPECT_DOUBLE_EQ(result.scores.top1.value(), 0.2);
      ASSERT_TRUE(result.scores.top5);
      EXPECT_DOUBLE_EQ(*result.scores.top5, 0.6);
      EXPECT_EQ(value_of(result.scores, EvalMetric::kTop1), *result.scores.top1);
      EXPECT_EQ(value_of(result.scores, EvalMetric::kTop5), *result.scores.top5);
      EXPECT_EQ(value_of(result.scores, EvalMetric::kLoss), *result.scores.loss);
    });
  }
}

TEST(Evaluate, KnowsThatARankWithoutImagesHasFiveHighestScoresToo) {
  const auto images = answers({0, 1}, {0, 2});
  run_ranks(3, [&images](ProcessGroup world) {
    const DistributedSampler sampler(images.size(), world, {.shuffle = false, .padding = false});
    const Loader share(images, sampler.epoch(0), 2, kUnscaled);
    const auto result = evaluate(five_answers, share, world, Loss()).value();
    ASSERT_TRUE(result.scores.top5) << "on rank " << world.rank();
    EXPECT_DOUBLE_EQ(*result.scores.top5, 1);
  });
}

TEST(Evaluate, FiveClassesHaveNoFiveHighestScores) {
  const auto images = answers({0, 1}, {0, 1});
  const Loader share(images, {0, 1}, 2, kUnscaled);
  const auto few = [](const Batch& batch) { return forward(batch).slice(1, 0, 5).contiguous(); };
  const auto result = evaluate(few, share, ProcessGroup(), Loss()).value();
  EXPECT_FALSE(result.scores.top5);
  EXPECT_EQ(value_of(result.scores, EvalMetric::kTop5), 1) << "that of the highest score";
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
  const auto result = evaluate(forward, share, ProcessGroup(), Loss()).value();
  EXPECT_EQ(result.samples, 2);
  EXPECT_DOUBLE_EQ(result.scores.top1.value(), 0.5);
  EXPECT_NEAR(result.scores.loss.value(), 20.0 / 2, 1e-5);
  EXPECT_DOUBLE_EQ(evaluate(five_answers, share, ProcessGroup(), Loss())->scores.top5.value(), 0.5);
}

TEST(Evaluate, IsLeftByAllRanksAfterTheBatchThatTheyAgreeOn) {
  const auto images = answers({0, 1, 2, 3, 4, 5, 6}, {0, 1, 2, 3, 4, 5, 6});
  run_ranks(2, [&images](ProcessGroup world) {
    const DistributedSampler sampler(images.size(), world, {.shuffle = false, .padding = false});
    const Loader share(images, sampler.epoch(0), 1, kUnscaled);
    int batches = 0;
    EXPECT_FALSE(evaluate(forward, share, world, Loss(), [&] { return ++batches == 2; }));
    EXPECT_EQ(batches, 2);
    const auto whole = evaluate(forward, share, world, Loss(), [] { return false; });
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
      share, ProcessGroup(), Loss())
                          .value();
  EXPECT_EQ(result.samples, 2);
}

}  // namespace
}  // namespace lockstep
