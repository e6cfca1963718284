// The numbers of transformers' nets are those of tests/conformance/language_models.py.

#include <algorithm>
#include <cmath>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <numeric>
#include <string>
#include <vector>

#include "tests/nn/model_inputs.h"
#include "tests/support/expected_numbers.h"
#include "tests/support/message_of.h"
#include <ATen/CPUGeneratorImpl.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cross_entropy_loss.h>
#include <ATen/ops/sin.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <torch/utils.h>

#include "lockstep/core/error.h"
#include "lockstep/nn/models/language/language_layers.h"
#include "lockstep/nn/models/language/llama.h"
#include "lockstep/nn/models/language/token_loss.h"
#include "lockstep/nn/models/model.h"
#include "lockstep/nn/named_state.h"

namespace lockstep::nn {
namespace {

using lockstep::testing::expected_numbers;
using lockstep::testing::message_of;
using ::testing::HasSubstr;
using torch::Tensor;

constexpr std::int64_t kWords = 37, kLength = 6;
constexpr const char* kNumbers = "language_models.txt";

Tensor formula(std::int64_t count, double start) {
  const Tensor numbers = at::arange(count, torch::kDouble);
  return at::sin(numbers * numbers * 0.37 + start);
}

// Two sequences, each with the token that follows.
Tensor tokens() {
  const Tensor numbers = at::arange(2 * (kLength + 1), torch::kLong) * 7;
  return numbers.remainder(kWords).view({2, kLength + 1});
}

Tensor inputs() { return tokens().slice(1, 0, kLength); }

Tensor loss_of(const Tensor& scores) {
  return at::cross_entropy_loss(scores.flatten(0, 1), tokens().slice(1, 1).flatten());
}

double distance(const Tensor& found, const std::vector<double>& expected) {
  const Tensor all = at::tensor(expected, torch::kDouble);
  return ((found.detach().to(torch::kDouble).flatten() - all).norm() / all.norm()).item<double>();
}

class LanguageModel : public ::testing::TestWithParam<std::string> {
 protected:
  LanguageModel() { torch::manual_seed(5); }

  Model model_by_formula(torch::ScalarType type) {
    Model model = make_model(GetParam(), kWords);
    model->to(type);
    const torch::NoGradGuard no_gradients;
    double place = 0;
    for (Tensor& parameter : model->parameters())
      parameter.copy_(formula(parameter.numel(), place++).view(parameter.sizes()) * 0.2);
    return model;
  }

  std::vector<double> expected(const std::string& what) {
    return expected_numbers(kNumbers, GetParam() + what);
  }
};

TEST_P(LanguageModel, GivesTheScoresOfTransformers) {
  EXPECT_LT(distance(model_by_formula(torch::kDouble)(inputs()), expected("_logits")), 1e-12);
  EXPECT_LT(distance(model_by_formula(torch::kFloat)(inputs()), expected("_logits")), 1e-5);
}

// The sum of a gradient may be nothing but rounding.
TEST_P(LanguageModel, HasTheNamesAndGradientsOfTransformers) {
  Model model = model_by_formula(torch::kDouble);
  const Tensor loss = loss_of(model(inputs()));
  EXPECT_NEAR(loss.item<double>(), expected("_loss").front(), 1e-12);
  loss.backward();
  EXPECT_EQ(static_cast<double>(named_state(*model).size()), expected("_tensors").front());
  for (const auto& item : named_state(*model)) {
    std::vector<double> numbers = expected(":" + item.key());
    const Tensor gradient = item.value().grad();
    const std::vector<std::int64_t> sizes(numbers.begin(), numbers.end() - 2);
    ASSERT_EQ(gradient.sizes(), at::IntArrayRef(sizes)) << item.key();
    const double norm = numbers.back(), sum = numbers.at(numbers.size() - 2);
    EXPECT_NEAR(gradient.norm().item<double>(), norm, 1e-11 * norm) << item.key();
    EXPECT_NEAR(gradient.sum().item<double>(), sum, 1e-11 * (norm + 1)) << item.key();
  }
}

// As where no rank can hold all of a model.
TEST_P(LanguageModel, IsDrawnParameterByParameterWithTheSameValues) {
  const Model expected = make_model(GetParam(), kWords);
  torch::manual_seed(5);
  Model model = make_model(GetParam(), kWords, {.is_filled_later = true});
  const torch::NoGradGuard no_gradients;
  const auto& net = dynamic_cast<const LanguageModelImpl&>(*model);
  const DrawParameter draw = net.draws(at::detail::getDefaultCPUGenerator());
  std::vector<Tensor> parameters = model->parameters();
  Tensor last = *std::ranges::find_if(
      parameters.rbegin(), parameters.rend(), [](const Tensor& each) { return each.dim() == 2; });
  last.zero_();
  draw(parameters.front());
  EXPECT_TRUE(parameters.front().equal(expected->parameters().front()));
  EXPECT_EQ(last.abs().max().item<float>(), 0);
  draw(last);
  draw(parameters.front());  // has been
  for (const auto& item : named_state(*expected))
    EXPECT_TRUE(named_state(*model)[item.key()].equal(item.value())) << item.key();
}

// Each layer as a stage of its own: what comes in is a leaf, and its gradient goes back.
TEST_P(LanguageModel, CutBeforeEachLayerComputesTheSameBits) {
  Model model = model_by_formula(torch::kFloat);
  const Tensor whole = model(inputs());
  loss_of(whole).backward();
  std::vector<Tensor> gradients;
  for (const Tensor& parameter : model->parameters()) gradients.push_back(parameter.grad().clone());
  model->zero_grad();
  const Layers layers = model->layers();
  std::vector<Flow> received, sent;
  const auto leaves_of = [](const Flow& flow) {
    Flow leaves;
    for (const Tensor& tensor : flow)
      leaves.push_back(tensor.detach().set_requires_grad(tensor.requires_grad()));
    return leaves;
  };
  for (std::size_t i = 0; i < layers.size(); ++i) {
    received.push_back(i == 0 ? Flow{inputs()} : leaves_of(sent.back()));
    auto layer = layers[i].value();
    torch::nn::AnyValue value =
        i < 2 ? layer.any_forward(received.back().front()) : layer.any_forward(received.back());
    const auto* const single = value.try_get<Tensor>();
    sent.push_back(single != nullptr ? Flow{*single} : value.get<Flow>());
  }
  EXPECT_TRUE(sent.back().front().equal(whole));
  loss_of(sent.back().front()).backward();
  for (std::size_t i = layers.size() - 1; i-- > 1;) {
    for (std::size_t k = 0; k < sent[i].size(); ++k)
      sent[i][k].backward(received[i + 1][k].grad(), /*retain_graph=*/true);
  }
  const auto parameters = model->parameters();
  for (std::size_t i = 1; i < parameters.size(); ++i)
    EXPECT_TRUE(parameters[i].grad().equal(gradients[i])) << i;
  EXPECT_TRUE(at::allclose(parameters[0].grad(), gradients[0], 1e-5, 1e-7));
}

TEST_P(LanguageModel, LaterTokensChangeNoEarlierScores) {
  Model model = make_model(GetParam(), kWords);
  const Tensor changed = inputs().clone();
  changed.select(1, kLength - 1).add_(1);
  const Tensor before = model(inputs()), after = model(changed);
  EXPECT_TRUE(before.slice(1, 0, kLength - 1).equal(after.slice(1, 0, kLength - 1)));
  EXPECT_FALSE(before.equal(after));
}

TEST_P(LanguageModel, CloneComputesTheSameWithItsOwnWeights) {
  Model model = make_model(GetParam(), kWords, {.dropout = 0.3});
  Model copy(std::dynamic_pointer_cast<ModelImpl>(model->clone()));
  const auto scores = [](Model& net) {
    torch::manual_seed(4);  // of dropout
    return net(inputs()).detach();
  };
  const Tensor expected = scores(model);
  EXPECT_TRUE(scores(copy).equal(expected));
  copy->eval();
  EXPECT_FALSE(scores(copy).equal(expected));
  const at::NoGradGuard no_grad;
  for (Tensor& parameter : copy->parameters()) parameter.zero_();
  EXPECT_TRUE(scores(copy).eq(0).all().item<bool>());
  EXPECT_TRUE(scores(model).equal(expected));
}

TEST_P(LanguageModel, OfNoSequencesHasNoScoresAndNoLosses) {
  Model model = make_model(GetParam(), kWords);
  model->eval();
  const Tensor none = at::zeros({0, kLength}, torch::kLong);
  EXPECT_EQ(model(none).sizes(), at::IntArrayRef({0, kLength, kWords}));
  EXPECT_EQ(model(with_next_tokens(none, none)).sizes(), none.sizes());
}

TEST_P(LanguageModel, RefusesWhatAreNoTokensOfIts) {
  Model model = make_model(GetParam(), kWords);
  const std::string name = GetParam();
  EXPECT_EQ(message_of<InvalidArgument>([&] {
    model(at::zeros({3, 1, 28, 28}));
  }),
      name + ": takes tokens [N, T], whole numbers, not Float [3, 1, 28, 28]");
  EXPECT_EQ(message_of<InvalidArgument>([&] { model(inputs() + 5); }),
      name +
          ": has a vocabulary of 37, and was given tokens from 5 to 40; give --num-classes 41 "
          "or more");
  EXPECT_THAT(message_of<InvalidArgument>([&] {
    model(at::zeros({1, 513}, torch::kLong));
  }),
      HasSubstr(name + ": takes sequences of at most "));
}

INSTANTIATE_TEST_SUITE_P(Nets, LanguageModel, ::testing::Values("gpt2-nano", "llama-260k"),
    [](const auto& test) { return test_name(test.param); });

std::int64_t parameters_of_shape(const std::string& name, std::int64_t vocabulary) {
  const Model model = make_model(name, vocabulary);
  std::int64_t count = 0;
  for (const Tensor& parameter : model->parameters()) count += parameter.numel();
  return count;
}

// As their authors count them; llama2.c's names are of these, its larger one without the embedding.
TEST(LanguageModels, HaveTheParametersOfTheirSources) {
  EXPECT_EQ(parameters_of_shape("gpt2", 50257), 124'439'808);
  EXPECT_EQ(parameters_of_shape("llama-260k", 512), 260'032);
  EXPECT_EQ(parameters_of_shape("llama-15m", 32000), 15'191'712);
}

// nanoGPT's and llama2.c's.
TEST(LanguageModels, BeginAsTheirSources) {
  torch::manual_seed(1);
  const auto deviation = [](const Model& model, const std::string& name) {
    return model->named_parameters()[name].std().item<double>();
  };
  const Model gpt2 = make_model("gpt2-nano", 256), llama = make_model("llama-260k", 256);
  EXPECT_NEAR(deviation(gpt2, "transformer.wte.weight"), 0.02, 5e-4);
  EXPECT_NEAR(deviation(gpt2, "transformer.h.1.mlp.c_fc.weight"), 0.02, 5e-4);
  EXPECT_NEAR(deviation(gpt2, "transformer.h.1.mlp.c_proj.weight"), 0.02 / std::sqrt(8), 2e-4);
  EXPECT_EQ(
      gpt2->named_parameters()["transformer.h.1.mlp.c_fc.bias"].count_nonzero().item<int>(), 0);
  EXPECT_NEAR(deviation(llama, "model.layers.1.mlp.down_proj.weight"), 0.02, 5e-4);
  EXPECT_NEAR(deviation(llama, "model.layers.1.mlp.up_proj.weight"), 0.02 / std::sqrt(10), 2e-4);
}

TEST(LanguageModels, DropoutIsForThemAlone) {
  EXPECT_THAT(message_of<InvalidArgument>([] { make_model("vgg11", 10, {.dropout = 0.1}); }),
      HasSubstr("the dropout of vgg11 cannot be set"));
  EXPECT_THROW(make_model("gpt2-nano", 10, {.dropout = 1}), InvalidArgument);
}

// Attention sees distances: turned by their places, two heads give what two later ones give.
TEST(Rotary, DependsOnDistancesAlone) {
  const Tensor heads = formula(16, 1).view({1, 1, 2, 8}).expand({1, 9, 2, 8});
  const Tensor turned = rotary(heads);
  const auto product = [&](std::int64_t first, std::int64_t second) {
    return (turned[0][first][0] * turned[0][second][1]).sum().item<double>();
  };
  EXPECT_NEAR(product(0, 3), product(5, 8), 1e-6);
  EXPECT_GT(std::abs(product(0, 3) - product(0, 4)), 1e-3);
  EXPECT_TRUE(turned[0][0].equal(heads[0][0]));
}

}  // namespace
}  // namespace lockstep::nn
