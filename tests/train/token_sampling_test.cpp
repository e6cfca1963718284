#include "lockstep/train/token_sampling.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <set>
#include <vector>

#include "tests/support/message_of.h"
#include <ATen/CPUGeneratorImpl.h>
#include <ATen/ops/one_hot.h>
#include <ATen/ops/tensor.h>

#include "lockstep/core/error.h"

namespace lockstep {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using TokenIds = std::vector<std::int64_t>;

std::set<std::int64_t> tokens_drawn(const SamplingSettings& settings) {
  const torch::Tensor scores = torch::tensor({1.0, 3.0, 2.0, -1e9});
  at::Generator generator = at::detail::createCPUGenerator(1);
  std::set<std::int64_t> drawn;
  for (int i = 0; i < 200; ++i) drawn.insert(drawn_token(scores, settings, generator));
  return drawn;
}

TEST(DrawnToken, IsOfTheLikeliest) {
  EXPECT_THAT(tokens_drawn({.temperature = 1}), ElementsAre(0, 1, 2));
  EXPECT_THAT(tokens_drawn({.temperature = 1, .top_k = 2}), ElementsAre(1, 2));
  EXPECT_THAT(tokens_drawn({.temperature = 1, .top_k = 1}), ElementsAre(1));
  EXPECT_THAT(tokens_drawn({.temperature = 0}), ElementsAre(1));
  EXPECT_THAT(tokens_drawn({.temperature = 0.01, .top_k = {}}), ElementsAre(1));
}

/// Counts on from the last token, and keeps how many it was shown.
struct CountingImpl final : nn::ModelImpl {
  CountingImpl() { register_parameter("weight", torch::zeros({1})); }
  torch::Tensor forward(torch::Tensor tokens) override {
    lengths.push_back(tokens.size(1));
    return at::one_hot((tokens + 1).remainder(7), 7).to(torch::kFloat) * 9;
  }
  TokenIds lengths;
};

TEST(SampleTokens, GoesOnFromTheLastOnesOfTheContext) {
  const auto counting = std::make_shared<CountingImpl>();
  nn::Model model(std::static_pointer_cast<nn::ModelImpl>(counting));
  TokenIds shown;
  const auto show = [&](std::int64_t token) { shown.push_back(token); };
  sample_tokens(model, {3, 4}, 3, {.tokens = 5, .temperature = 0}, show);
  EXPECT_THAT(shown, ElementsAre(5, 6, 0, 1, 2));
  EXPECT_THAT(counting->lengths, ElementsAre(2, 3, 3, 3, 3));
  EXPECT_THROW(sample_tokens(model, {}, 3, {}, show), InvalidArgument);
}

TEST(PromptTokens, AreBytesOrNumbers) {
  EXPECT_THAT(prompt_tokens({"text"}, "a\xc3\xa9"), ElementsAre(97, 195, 169));
  EXPECT_THAT(prompt_tokens({"tokens"}, " 464 2068"), ElementsAre(464, 2068));
  const auto refusal = [](const char* data, const char* prompt) {
    return testing::message_of<InvalidArgument>([&] { prompt_tokens({data}, prompt); });
  };
  EXPECT_THAT(refusal("tokens", "The quick"), HasSubstr("has the numbers of tokens"));
  EXPECT_EQ(refusal("text", ""), "sample: --prompt is empty");
  EXPECT_THAT(refusal("cifar10", "a"), HasSubstr("--data cifar10, which are no tokens"));
}

TEST(ShownToken, LeavesTheTerminalAlone) {
  EXPECT_EQ(shown_token({"text"}, 'a') + shown_token({"text"}, '\n'), "a\n");
  EXPECT_EQ(shown_token({"text"}, 27), "?");
  EXPECT_EQ(shown_token({"text"}, 0xc3), "\xc3");
  EXPECT_EQ(shown_token({"tokens"}, 464), "464 ");
}

}  // namespace
}  // namespace lockstep
