#include "lockstep/train/evaluate.h"

#include <cmath>

#include <gtest/gtest.h>

#include <ATen/ops/one_hot.h>
#include <ATen/ops/zeros.h>

#include "lockstep/comm/run_ranks.h"
#include "lockstep/data/distributed_sampler.h"

namespace lockstep {
namespace {

// Images of one pixel whose value, 0 to 9, says the class that `forward` answers with.
data::InMemoryImages answers(std::vector<std::uint8_t> pixels, std::vector<std::uint8_t> labels) {
  return data::InMemoryImages(
      {.name = "answers",
       .shape = {.channels = 1, .height = 1, .width = 1},
       .classes = 10,
       .pixels = std::move(pixels),
       .labels = std::move(labels)});
}

const LoaderOptions kUnscaled = {.normalization = {.mean = {0.0F}, .std = {1.0F / 255}}};

torch::Tensor forward(const torch::Tensor& images) {
  return at::one_hot(images.flatten().round().to(torch::kLong), 10).to(torch::kFloat) * 20;
}

TEST(Evaluate, CountsEachImageOnceWhateverTheRanks) {
  // 7 images, 4 of them right; no number of ranks but 1 and 7 deals them out evenly.
  const auto images = answers({0, 1, 2, 3, 4, 5, 6}, {0, 1, 2, 3, 9, 9, 9});
  for (int ranks = 1; ranks <= 4; ++ranks) {
    run_ranks(ranks, [&images](ProcessGroup world) {
      const DistributedSampler sampler(images.size(), world, {.shuffle = false, .padding = false});
      const Loader share(images, sampler.epoch(0), 2, kUnscaled);
      const auto result = evaluate(forward, share, world);
      EXPECT_EQ(result.samples, 7);
      EXPECT_DOUBLE_EQ(result.accuracy, 4.0 / 7);
      EXPECT_NEAR(result.loss, 3 * 20.0 / 7, 1e-5);
    });
  }
}

TEST(Evaluate, LeavesNoGraphBehind) {
  const auto images = answers({0, 1}, {0, 1});
  torch::Tensor weight = at::zeros({1}, torch::kFloat).requires_grad_();
  const Loader share(images, {0, 1}, 2, kUnscaled);
  const auto result = evaluate(
      [&weight](const torch::Tensor& batch) {
        torch::Tensor scores = forward(batch) + weight;
        EXPECT_FALSE(scores.requires_grad());
        return scores;
      },
      share,
      ProcessGroup());
  EXPECT_EQ(result.samples, 2);
}

}  // namespace
}  // namespace lockstep
