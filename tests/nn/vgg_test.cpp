// torchvision's numbers are those of tests/conformance/models.py, which says how they are made.
// These nets are large (up to 0.6 GB), so that one test looks at several things.

#include "lockstep/nn/models/vgg.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/nn/model_inputs.h"
#include "tests/nn/torchvision_reference.h"
#include "tests/support/message_of.h"
#include <ATen/ops/randn.h>
#include <torch/nn/modules/dropout.h>
#include <torch/utils.h>

#include "lockstep/core/error.h"
#include "lockstep/nn/models/model.h"

namespace lockstep::nn {
namespace {

using ::testing::ElementsAre;

Model seeded_model(const std::string& name) {
  torch::manual_seed(0);
  return make_model(name, 10);
}

class Vgg : public ::testing::TestWithParam<std::string> {};

TEST_P(Vgg, StartsAndEvaluatesAsTorchvision) {
  const Reference theirs = read_reference(GetParam());
  Model model = seeded_model(GetParam());
  expect_alike(model, theirs);
  expect_seed0(model, theirs);
  fill(model, theirs);
  model->eval();
  const at::NoGradGuard no_grad;
  EXPECT_LT(distance(model(reference_images().to(at::kFloat)), theirs.evaluated), 1e-5);
}

INSTANTIATE_TEST_SUITE_P(Torchvision, Vgg,
    ::testing::Values(
        "vgg11", "vgg11-bn", "vgg13", "vgg13-bn", "vgg16", "vgg16-bn", "vgg19", "vgg19-bn"),
    [](const auto& test) { return test_name(test.param); });

TEST(VggNet, TrainsAsTorchvision) {
  const Reference theirs = read_reference("vgg11-bn");
  Model model = seeded_model("vgg11-bn");
  model->to(at::kDouble);
  fill(model, theirs);
  for (const auto& module : model->modules()) {
    if (module->as<torch::nn::Dropout>() != nullptr) module->eval();
  }
  const auto logits = model(reference_images());
  EXPECT_LT(distance(logits, theirs.trained), 1e-10);
  logits.backward(reference_gradient());
  expect_trained(model, theirs);
}

TEST(VggNet, NamesLayersAsTorchvision) {
  auto keys = make_model("vgg11", 2)->layers().keys();
  EXPECT_EQ(keys.size(), 31U);  // 21 of the features, 7 of the classifier, 3 others
  EXPECT_EQ(keys[1], "features.0");
  EXPECT_EQ(keys[21], "features.20");
  keys.erase(keys.begin(), keys.begin() + 22);
  EXPECT_THAT(
      keys, ElementsAre("avgpool", "flatten", "classifier.0", "classifier.1", "classifier.2",
                "classifier.3", "classifier.4", "classifier.5", "classifier.6"));
}

TEST(VggNet, KeepsWeightsAndMapsChannelsLast) {
  auto model = make_model("vgg11-bn", 2);
  model->eval();
  const at::NoGradGuard no_grad;
  const auto images = images_for("vgg11-bn", 2);
  const auto layers = model->layers();
  auto maps = images;
  for (std::size_t i = 0; i < layer_index(layers, "flatten"); ++i) {
    auto layer = layers[i].value();
    maps = layer.forward(maps);
    EXPECT_TRUE(maps.is_contiguous(at::MemoryFormat::ChannelsLast)) << layers[i].key();
  }
  for (const auto& item : model->named_parameters()) {
    if (item.value().dim() != 4) continue;
    EXPECT_TRUE(item.value().is_contiguous(at::MemoryFormat::ChannelsLast)) << item.key();
  }
  EXPECT_TRUE(model(images).equal(model(images.contiguous(at::MemoryFormat::ChannelsLast))));
}

TEST(VggNet, DropsHalfOfTheHiddenUnitsInTrainingOnly) {
  auto model = make_model("vgg11", 2);
  const at::NoGradGuard no_grad;
  const auto layers = model->layers();
  for (const char* name : {"classifier.2", "classifier.5"}) {
    auto dropout = layers[layer_index(layers, name)].value();
    const auto units = at::randn({8, 4096}).abs() + 1;
    EXPECT_NEAR(dropout.forward(units).eq(0).to(at::kFloat).mean().item<double>(), 0.5, 0.02);
    model->eval();
    EXPECT_TRUE(dropout.forward(units).equal(units));
    model->train();
  }
}

TEST(VggNet, RefusesOtherImages) {
  auto model = make_model("vgg11", 2);
  EXPECT_EQ(lockstep::testing::message_of<InvalidArgument>([&] {
    model(at::randn({2, 1, 32, 32}));
  }),
      "vgg11: takes images of [N, 3, height, width], not [2, 1, 32, 32]");
}

}  // namespace
}  // namespace lockstep::nn
