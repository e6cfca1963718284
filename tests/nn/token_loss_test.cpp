#include "lockstep/nn/models/language/token_loss.h"

#include <gtest/gtest.h>
#include <vector>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/allclose.h>
#include <ATen/ops/cross_entropy_loss.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/randn.h>
#include <torch/utils.h>

#include "lockstep/core/error.h"
#include "lockstep/nn/autocast.h"
#include "lockstep/nn/kernels.h"
#include "lockstep/nn/models/model.h"
#include "lockstep/parallel/place/memory_meter.h"

namespace lockstep::nn {
namespace {

using torch::Tensor;

constexpr std::int64_t kIgnored = -100;

struct Losses {
  Tensor sum;
  std::vector<Tensor> gradients;
};

class TokenLoss : public ::testing::Test {
 protected:
  TokenLoss() { torch::manual_seed(2); }

  // The last token of each sequence does not count.
  void make(std::int64_t words, torch::ScalarType type, std::int64_t length = 50) {
    hidden_ = at::randn({2, length, 4}, type).requires_grad_();
    weight_ = at::randn({words, 4}, type).requires_grad_();
    tokens_ = at::randint(words, {2, length}, torch::kLong);
    tokens_.select(1, length - 1).fill_(kIgnored);
  }

  // As a mean: what comes back into the loss is not 1.
  Losses taken(const Tensor& sum) {
    (sum / 100).backward();
    Losses losses{sum.detach(), {hidden_.grad().clone(), weight_.grad().clone()}};
    hidden_.mutable_grad() = Tensor();
    weight_.mutable_grad() = Tensor();
    return losses;
  }

  Losses whole(double smoothing) {
    const Tensor scores = at::linear(hidden_, weight_).to(torch::kDouble).flatten(0, 1);
    return taken(at::cross_entropy_loss(
        scores, tokens_.flatten(), {}, at::Reduction::Sum, kIgnored, smoothing));
  }

  Losses chunked(double smoothing) {
    const auto factors = score_factors(deferred_scores(hidden_, weight_));
    return taken(chunked_cross_entropy(*factors, tokens_, kIgnored, smoothing));
  }

  static void expect_close(const Losses& found, const Losses& expected, double share) {
    EXPECT_NEAR(found.sum.item<double>() / expected.sum.item<double>(), 1, share);
    for (std::size_t i = 0; i < expected.gradients.size(); ++i) {
      const Tensor difference = found.gradients[i] - expected.gradients[i];
      EXPECT_EQ(found.gradients[i].scalar_type(), expected.gradients[i].scalar_type());
      EXPECT_LT((difference.norm() / expected.gradients[i].norm()).item<double>(), share) << i;
    }
  }

  Tensor hidden_, weight_, tokens_;
};

TEST_F(TokenLoss, IsCrossEntropyOfTheProduct) {
  make(30, torch::kDouble);
  for (const double smoothing : {0.0, 0.1})
    expect_close(chunked(smoothing), whole(smoothing), 1e-12);
}

// 100 tokens of 262144 words are two chunks, the second a smaller one. Sums are as long.
TEST_F(TokenLoss, IsTheSameInSeveralChunks) {
  make(262144, torch::kDouble);
  expect_close(chunked(0.1), whole(0.1), 1e-11);
  make(262144, torch::kFloat);
  const KernelScope scope(Kernels::kOwn);
  expect_close(chunked(0.1), whole(0.1), 1e-4);
}

TEST_F(TokenLoss, OfShorterTypesKeepsItsSumsInFloat) {
  make(30, torch::kFloat);
  for (const Kernels who : {Kernels::kLibTorch, Kernels::kOwn}) {
    const KernelScope scope(who);
    const Losses expected = whole(0.1);
    expect_close(chunked(0.1), expected, 1e-5);
    const Autocast autocast(at::kCPU);
    expect_close(chunked(0.1), expected, 0.02);
  }
}

TEST_F(TokenLoss, OfEachTokenIsThatOfWholeScores) {
  for (const std::int64_t words : {30, 262144}) {
    make(words, torch::kDouble);
    const Tensor scores = at::linear(hidden_, weight_).transpose(1, 2);
    const Tensor expected = at::cross_entropy_loss(scores, tokens_, {}, at::Reduction::None);
    const Tensor found = token_losses({hidden_, weight_}, tokens_);
    EXPECT_EQ(found.sizes(), tokens_.sizes());
    EXPECT_TRUE(at::allclose(found, expected, 1e-12, 1e-12)) << words;
  }
}

// As the scores of the last layer, which are of autocast's type.
TEST_F(TokenLoss, OfEachTokenHasScoresOfAutocastsType) {
  make(30, torch::kFloat);
  const torch::NoGradGuard no_gradients;
  const Autocast autocast(at::kCPU);
  const Tensor scores = at::linear(hidden_, weight_);
  ASSERT_EQ(scores.scalar_type(), torch::kBFloat16);
  const Tensor expected = at::cross_entropy_loss(
      scores.to(torch::kFloat).transpose(1, 2), tokens_, {}, at::Reduction::None);
  EXPECT_TRUE(at::allclose(token_losses({hidden_, weight_}, tokens_), expected, 1e-6, 1e-6));
}

// Three times a chunk's, which are its scores, in their own order and as logarithms.
TEST_F(TokenLoss, OfEachTokenNeedsScoresOfAChunkAlone) {
  constexpr std::int64_t kWords = 262144, kChunk = 64 * kWords * 4;
  make(kWords, torch::kFloat, 200);
  const torch::NoGradGuard no_gradients;
  const MemoryMeter meter;
  token_losses({hidden_, weight_}, tokens_);
  EXPECT_LT(meter.total().peak, 3 * kChunk);
}

TEST_F(TokenLoss, RefusesASecondBackward) {
  make(30, torch::kDouble);
  const Tensor sum = chunked_cross_entropy({hidden_, weight_}, tokens_, kIgnored);
  sum.backward({}, /*retain_graph=*/true);
  EXPECT_THROW(sum.backward(), InvalidArgument);
}

TEST(DeferredScores, AreOfTrainingWithGradientsAlone) {
  Model model = make_model("gpt2-nano", 30);
  const Tensor tokens = at::randint(30, {2, 5}, torch::kLong);
  const auto is_deferred = [&] { return score_factors(model(tokens)).has_value(); };
  EXPECT_FALSE(is_deferred());
  defer_scores(*model);
  EXPECT_TRUE(is_deferred());
  EXPECT_EQ(model(tokens).sizes(), at::IntArrayRef({2, 5, 0}));
  model->eval();
  EXPECT_FALSE(is_deferred());
  model->train();
  const torch::NoGradGuard no_gradients;
  EXPECT_FALSE(is_deferred());
  EXPECT_EQ(model(tokens).sizes(), at::IntArrayRef({2, 5, 30}));
}

TEST(NextTokens, GiveTheirLosses) {
  Model model = make_model("llama-260k", 30);
  const Tensor tokens = at::randint(30, {2, 5}, torch::kLong), next = tokens.add(1).remainder(30);
  const Tensor scores = model(tokens).transpose(1, 2), both = with_next_tokens(tokens, next);
  const Tensor each = at::cross_entropy_loss(scores, next, {}, at::Reduction::None);
  EXPECT_TRUE(at::allclose(model(both), each, 1e-5, 1e-5));
  sum_losses(*model, kIgnored, /*smoothing=*/0.1);
  const Tensor sum =
      at::cross_entropy_loss(scores, next, {}, at::Reduction::Sum, kIgnored, /*smoothing=*/0.1);
  EXPECT_TRUE(at::allclose(model(both), sum, 1e-5, 1e-5)) << "in training";
  model->eval();
  EXPECT_TRUE(at::allclose(model(both), each, 1e-5, 1e-5));
}

}  // namespace
}  // namespace lockstep::nn
