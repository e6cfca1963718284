// The expected numbers are Python PyTorch's, made by tests/conformance/training.py.

#include "lockstep/train/optim/training_loss.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/train/training_expected.h"
#include <ATen/ops/arange.h>
#include <ATen/ops/cross_entropy_loss.h>
#include <ATen/ops/sin.h>
#include <torch/types.h>

namespace lockstep {
namespace {

using ::testing::DoubleNear;
using ::testing::Pointwise;

torch::Tensor scores_of(std::int64_t samples) {
  const auto count = at::arange(samples * 5, torch::kDouble);
  return (at::sin(count * count * 0.37 + 0.5) * 3).view({samples, 5});
}

torch::Tensor labels_of(const std::vector<std::int64_t>& classes) {
  return torch::tensor(classes, torch::kLong);
}

// The loss, then its gradient.
std::vector<double> loss_and_gradient(double smoothing) {
  const torch::Tensor scores = scores_of(3).requires_grad_();
  const torch::Tensor loss = training_loss(scores, labels_of({1, 4, 0}), {.smoothing = smoothing});
  loss.backward();
  std::vector<double> all = {loss.item<double>()};
  const auto* gradient = scores.grad().const_data_ptr<double>();
  all.insert(all.end(), gradient, gradient + 15);
  return all;
}

TEST(TrainingLoss, IsPyTorchsWithAndWithoutSmoothing) {
  EXPECT_THAT(loss_and_gradient(0.1), Pointwise(DoubleNear(1e-6), testing::kSmoothed));
  EXPECT_THAT(loss_and_gradient(0), Pointwise(DoubleNear(1e-6), testing::kUnsmoothed));
}

TEST(TrainingLoss, IsTheMeanOfCrossEntropyBitForBit) {
  const torch::Tensor scores = scores_of(7).to(torch::kFloat);
  const torch::Tensor labels = labels_of({0, 1, 2, 3, 4, 0, 1});
  EXPECT_TRUE(training_loss(scores, labels, {}).equal(at::cross_entropy_loss(scores, labels)));
}

TEST(TrainingLoss, PartsByTheirSharesAddUpToTheWholeWhateverIsIgnored) {
  const torch::Tensor scores = scores_of(6);
  const torch::Tensor labels = labels_of({0, -100, 2, -100, -100, 1});
  for (const double smoothing : {0.0, 0.1}) {
    const auto part = [&](std::int64_t first, std::int64_t end) {
      const double share = static_cast<double>(end - first) / 6;
      return share * training_loss(scores.slice(0, first, end), labels.slice(0, first, end),
                         {.smoothing = smoothing})
                         .item<double>();
    };
    const double whole = training_loss(scores, labels, {.smoothing = smoothing}).item<double>();
    EXPECT_NEAR(part(0, 3) + part(3, 5) + part(5, 6), whole, 1e-6) << smoothing;
    EXPECT_EQ(part(3, 5), 0) << "nothing in it counts";
    EXPECT_GT(whole, 0);
  }
}

TEST(TrainingLoss, IsComputedInFloatWhateverTheScores) {
  const torch::Tensor scores = scores_of(3).to(torch::kBFloat16);
  const torch::Tensor loss = training_loss(scores, labels_of({1, 4, 0}), {});
  EXPECT_EQ(loss.scalar_type(), torch::kFloat);
  EXPECT_TRUE(loss.equal(training_loss(scores.to(torch::kFloat), labels_of({1, 4, 0}), {})));
}

}  // namespace
}  // namespace lockstep
