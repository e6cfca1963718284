// The expected numbers are Python PyTorch's, made by tests/conformance/training.py.

#include "lockstep/train/optim/loss.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/expected_numbers.h"
#include "tests/support/message_of.h"
#include <ATen/ops/allclose.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cross_entropy_loss.h>
#include <ATen/ops/mse_loss.h>
#include <ATen/ops/one_hot.h>
#include <ATen/ops/sin.h>
#include <torch/types.h>

#include "lockstep/core/error.h"

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
  const torch::Tensor loss = Loss(nn::kCrossEntropy, smoothing).mean(scores, labels_of({1, 4, 0}));
  loss.backward();
  std::vector<double> all = {loss.item<double>()};
  const auto* gradient = scores.grad().const_data_ptr<double>();
  all.insert(all.end(), gradient, gradient + 15);
  return all;
}

TEST(Loss, IsPyTorchsWithAndWithoutSmoothing) {
  EXPECT_THAT(loss_and_gradient(0.1),
      Pointwise(DoubleNear(1e-6), testing::expected_numbers("training.txt", "Smoothed")));
  EXPECT_THAT(loss_and_gradient(0),
      Pointwise(DoubleNear(1e-6), testing::expected_numbers("training.txt", "Unsmoothed")));
}

TEST(Loss, IsTheMeanOfCrossEntropyBitForBit) {
  const torch::Tensor scores = scores_of(7).to(torch::kFloat);
  const torch::Tensor labels = labels_of({0, 1, 2, 3, 4, 0, 1});
  EXPECT_TRUE(Loss().mean(scores, labels).equal(at::cross_entropy_loss(scores, labels)));
}

TEST(Loss, PartsByTheirSharesAddUpToTheWholeWhateverIsIgnored) {
  const torch::Tensor scores = scores_of(6);
  const torch::Tensor labels = labels_of({0, -100, 2, -100, -100, 1});
  for (const Loss& loss : {Loss(), Loss(nn::kCrossEntropy, 0.1), Loss(nn::kMeanSquaredError)}) {
    const auto part = [&](std::int64_t first, std::int64_t end) {
      const double share = static_cast<double>(end - first) / 6;
      return share *
             loss.mean(scores.slice(0, first, end), labels.slice(0, first, end)).item<double>();
    };
    const double whole = loss.mean(scores, labels).item<double>();
    EXPECT_NEAR(part(0, 3) + part(3, 5) + part(5, 6), whole, 1e-6);
    EXPECT_EQ(part(3, 5), 0) << "nothing in it counts";
    EXPECT_GT(whole, 0);
  }
}

TEST(Loss, OfHalvesIsComputedInFloat) {
  const torch::Tensor scores = scores_of(3).to(torch::kBFloat16);
  const torch::Tensor loss = Loss().mean(scores, labels_of({1, 4, 0}));
  EXPECT_EQ(loss.scalar_type(), torch::kFloat);
  EXPECT_TRUE(loss.equal(Loss().mean(scores.to(torch::kFloat), labels_of({1, 4, 0}))));
}

// So that a net of Python in double trains as there.
TEST(Loss, OfDoublesIsComputedInDouble) {
  const torch::Tensor scores = scores_of(7), labels = labels_of({0, 1, 2, 3, 4, 0, 1});
  EXPECT_TRUE(Loss().mean(scores, labels).equal(at::cross_entropy_loss(scores, labels)));
  EXPECT_EQ(Loss(nn::kMeanSquaredError).of_each(scores, labels).scalar_type(), torch::kDouble);
}

TEST(Loss, MseIsPyTorchsOfOneHotLabelsAndSoIsItsGradient) {
  const torch::Tensor ours = scores_of(7).to(torch::kFloat).requires_grad_();
  const torch::Tensor theirs = ours.detach().clone().requires_grad_();
  const torch::Tensor labels = labels_of({0, 1, 2, 3, 4, 0, 1});
  const torch::Tensor loss = Loss(nn::kMeanSquaredError).mean(ours, labels);
  const torch::Tensor expected = at::mse_loss(theirs, at::one_hot(labels, 5).to(torch::kFloat));
  EXPECT_TRUE(at::allclose(loss, expected, 1e-6, 0)) << loss << expected;
  loss.backward();
  expected.backward();
  EXPECT_TRUE(at::allclose(ours.grad(), theirs.grad(), 1e-6, 1e-9));
}

TEST(Loss, ThoseOfTheSamplesAddUpToTheSum) {
  const torch::Tensor scores = scores_of(4), labels = labels_of({3, -100, 0, 4});
  for (const char* name : {nn::kCrossEntropy, nn::kMeanSquaredError}) {
    const Loss loss(name);
    const torch::Tensor each = loss.of_each(scores, labels);
    EXPECT_EQ(each.sizes(), at::IntArrayRef({4}));
    EXPECT_EQ(each[1].item<double>(), 0) << "it does not count";
    EXPECT_TRUE(at::allclose(each.sum(), loss.sum(scores, labels)));
  }
}

TEST(Loss, AnUnknownOneIsRefusedWithThoseThatThereAre) {
  EXPECT_EQ(testing::message_of<InvalidArgument>([] { Loss("msee"); }),
      "train: --loss: there is no such loss: msee; there are cross-entropy, mse");
}

}  // namespace
}  // namespace lockstep
