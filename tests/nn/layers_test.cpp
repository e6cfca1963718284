// What pipelines rest on: a model is a chain that can be cut before any layer.

#include "lockstep/nn/models/layers.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <set>
#include <utility>
#include <vector>

#include "tests/nn/model_inputs.h"
#include "tests/support/message_of.h"
#include <ATen/ops/randn.h>
#include <torch/utils.h>

#include "lockstep/core/error.h"
#include "lockstep/nn/models/model.h"

namespace lockstep::nn {
namespace {

using ::testing::ElementsAre;

struct Run {
  torch::Tensor logits;
  std::vector<torch::Tensor> gradients;
};

std::vector<torch::Tensor> taken_gradients(Model& model) {
  std::vector<torch::Tensor> gradients;
  for (const auto& parameter : model->parameters()) gradients.push_back(parameter.grad().clone());
  model->zero_grad();
  return gradients;
}

// Dropout draws the same in both runs.
constexpr std::uint64_t kDropoutSeed = 6;

Run run_whole(Model& model, const torch::Tensor& images, const torch::Tensor& weights) {
  torch::manual_seed(kDropoutSeed);
  const auto logits = model(images);
  logits.backward(weights);
  return {logits.detach(), taken_gradients(model)};
}

// Computes one layer, which must leave its input as it was.
torch::Tensor run_layer(const Layers& layers, std::size_t index, const torch::Tensor& input) {
  const auto before = input.detach().clone();
  auto layer = layers[index].value();
  auto values = layer.forward(input);
  EXPECT_TRUE(input.equal(before)) << layers[index].key() << " changed its input";
  return values;
}

// Each layer as a separate stage of a pipeline, which begins with a leaf.
Run run_stages(Model& model, const torch::Tensor& images, torch::Tensor gradient) {
  torch::manual_seed(kDropoutSeed);
  const auto layers = model->layers();
  std::vector<torch::Tensor> received, sent;
  for (std::size_t i = 0; i < layers.size(); ++i) {
    const auto& input = i == 0 ? images : sent.back();
    received.push_back(input.detach().requires_grad_(input.requires_grad()));
    sent.push_back(run_layer(layers, i, received.back()));
  }
  for (std::size_t i = layers.size(); i-- > 0 && sent[i].requires_grad();) {
    sent[i].backward(gradient);
    gradient = received[i].grad();
  }
  return {sent.back().detach(), taken_gradients(model)};
}

class EveryModel : public ::testing::TestWithParam<std::string> {
 protected:
  EveryModel() { torch::manual_seed(5); }
};

TEST_P(EveryModel, CutBeforeEachLayerComputesTheSameBits) {
  auto model = make_model(GetParam(), 7);
  const auto images = images_for(GetParam(), 3), weights = at::randn({3, 7});
  const auto whole = run_whole(model, images, weights);
  const auto stages = run_stages(model, images, weights);
  EXPECT_TRUE(stages.logits.equal(whole.logits));
  const auto names = model->named_parameters().keys();
  for (std::size_t i = 0; i < names.size(); ++i) {
    EXPECT_TRUE(stages.gradients[i].equal(whole.gradients[i])) << names[i];
  }
}

TEST_P(EveryModel, ChainComputesTheSameBitsInEvaluation) {
  auto model = make_model(GetParam(), 7);
  model->eval();
  const at::NoGradGuard no_grad;
  const auto images = images_for(GetParam(), 3);
  const auto layers = model->layers();
  auto values = images;
  for (std::size_t i = 0; i < layers.size(); ++i) values = run_layer(layers, i, values);
  EXPECT_TRUE(values.equal(model(images)));
}

TEST_P(EveryModel, LayersHoldEachParameterAndBufferOnceUnderItsName) {
  const auto model = make_model(GetParam(), 7);
  auto expected = model->named_parameters();
  expected.update(model->named_buffers());
  std::size_t found = 0;
  std::set<const void*> seen;
  for (const auto& layer : model->layers()) {
    auto tensors = layer.value().ptr()->named_parameters();
    tensors.update(layer.value().ptr()->named_buffers());
    for (const auto& item : tensors) {
      const auto* tensor = expected.find(layer.key() + "." + item.key());
      ASSERT_NE(tensor, nullptr) << layer.key() << " " << item.key();
      EXPECT_TRUE(tensor->is_same(item.value())) << layer.key() << " " << item.key();
      EXPECT_TRUE(seen.insert(item.value().unsafeGetTensorImpl()).second) << item.key();
      ++found;
    }
  }
  EXPECT_EQ(found, expected.size());
}

INSTANTIATE_TEST_SUITE_P(Layers, EveryModel, ::testing::ValuesIn(models_of_each_kind()),
    [](const auto& test) { return test_name(test.param); });

TEST(Layers, HaveReadableNames) {
  EXPECT_THAT(make_model("toy", 5)->layers().keys(), ElementsAre("input", "net1", "relu", "net2"));
  EXPECT_THAT(
      make_model("mnist-small", 5)->layers().keys(), ElementsAre("input", "0", "3", "4", "5", "6"));
  EXPECT_THAT(make_model("resnet18-cifar", 5)->layers().keys(),
      ElementsAre("input", "conv1", "bn1", "relu", "layer1.0", "layer1.1", "layer2.0", "layer2.1",
          "layer3.0", "layer3.1", "layer4.0", "layer4.1", "avgpool", "flatten", "fc"));
  EXPECT_EQ(make_model("resnet50", 5)->layers()[4].key(), "maxpool");
}

TEST(Layers, FindsALayerOrTheFirstOneBelowTheName) {
  const auto layers = make_model("resnet50", 5)->layers();
  EXPECT_EQ(layer_index(layers, "input"), 0U);
  EXPECT_EQ(layer_index(layers, "layer3"), 12U);  // 5 of the stem, 3 and 4 blocks
  EXPECT_EQ(layers[layer_index(layers, "layer3")].key(), "layer3.0");
  EXPECT_EQ(layers[layer_index(layers, "layer4.2")].key(), "layer4.2");
}

TEST(Layers, ListsTheKeysWhenThereIsNoSuchLayer) {
  const auto layers = make_model("toy", 5)->layers();
  EXPECT_EQ(lockstep::testing::message_of<InvalidArgument>([&] { layer_index(layers, "net"); }),
      "layer_index: there is no such layer: net; there are input, net1, relu, net2");
}

}  // namespace
}  // namespace lockstep::nn
