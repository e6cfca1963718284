// torchvision's numbers are those of tests/conformance/models.py, which says how they are made.

#include "lockstep/nn/models/resnet.h"

#include <cmath>
#include <gtest/gtest.h>
#include <vector>

#include "tests/nn/model_inputs.h"
#include "tests/nn/torchvision_reference.h"
#include "tests/support/message_of.h"
#include <ATen/ops/randn.h>
#include <torch/nn/modules/conv.h>
#include <torch/utils.h>

#include "lockstep/core/error.h"
#include "lockstep/nn/models/model.h"

namespace lockstep::nn {
namespace {

class ResNet : public ::testing::TestWithParam<std::string> {
 protected:
  ResNet() : theirs_(read_reference(GetParam())) {
    torch::manual_seed(0);
    model_ = make_model(GetParam(), 10);
  }

  // What the script computed in float64.
  void take_their_weights() {
    model_->to(at::kDouble);
    fill(model_, theirs_);
  }

  Reference theirs_;
  Model model_{nullptr};
};

TEST_P(ResNet, HasTorchvisionsNamesShapesAndOrder) { expect_alike(model_, theirs_); }

TEST_P(ResNet, StartsWithTorchvisionsWeightsForTheSameSeed) {
  // torchvision has no ResNet with CIFAR's stem.
  if (GetParam() == "resnet18-cifar") {
    EXPECT_EQ(model_->named_parameters()["conv1.weight"].size(2), 3);
    return;
  }
  expect_seed0(model_, theirs_);
}

TEST_P(ResNet, DrawsConvolutionsFromKaimingsFanOut) {
  for (const auto& item : model_->named_parameters()) {
    const auto& weight = item.value();
    if (weight.dim() != 4) continue;
    const auto fan_out = static_cast<double>(weight.select(1, 0).numel());
    const double deviation = weight.std().item<double>();
    EXPECT_NEAR(deviation, std::sqrt(2 / fan_out), 0.05 * deviation) << item.key();
  }
}

TEST_P(ResNet, EvaluatesAsTorchvision) {
  take_their_weights();
  model_->eval();
  const auto images = reference_images();
  EXPECT_LT(distance(model_(images), theirs_.evaluated), 1e-10);
  model_->to(at::kFloat);
  EXPECT_LT(distance(model_(images.to(at::kFloat)), theirs_.evaluated), 1e-5);
}

TEST_P(ResNet, TrainsAsTorchvision) {
  take_their_weights();
  const auto logits = model_(reference_images());
  EXPECT_LT(distance(logits, theirs_.trained), 1e-10);
  logits.backward(reference_gradient());
  expect_trained(model_, theirs_);
}

TEST_P(ResNet, KeepsWeightsAndMapsChannelsLast) {
  const auto images = images_for(GetParam(), 2);
  const auto layers = model_->layers();
  auto maps = images;
  for (std::size_t i = 0; i < layer_index(layers, "flatten"); ++i) {
    auto layer = layers[i].value();
    maps = layer.forward(maps);
    EXPECT_TRUE(maps.is_contiguous(at::MemoryFormat::ChannelsLast)) << layers[i].key();
  }
  for (const auto& item : model_->named_parameters()) {
    if (item.value().dim() != 4) continue;
    EXPECT_TRUE(item.value().is_contiguous(at::MemoryFormat::ChannelsLast)) << item.key();
  }
  EXPECT_TRUE(model_(images).equal(model_(images.contiguous(at::MemoryFormat::ChannelsLast))));
}

TEST_P(ResNet, RefusesOtherImages) {
  for (const auto& images : {at::randn({2, 1, 32, 32}), at::randn({3, 32, 32})}) {
    EXPECT_EQ(lockstep::testing::message_of<InvalidArgument>([&] { model_(images); }),
        concat(GetParam(), ": takes images of [N, 3, height, width], not ", images.sizes()));
  }
}

INSTANTIATE_TEST_SUITE_P(Torchvision, ResNet,
    ::testing::Values("resnet18", "resnet18-cifar", "resnet34", "resnet50"),
    [](const auto& test) { return test_name(test.param); });

// The stride of a bottleneck is in its 3x3 convolution (v1.5).
TEST(Bottleneck, HalvesTheMapsInItsSecondConvolution) {
  const auto model = make_model("resnet50", 10);
  for (const auto& item : model->named_modules()) {
    const auto* layer = item.value()->as<torch::nn::Conv2d>();
    if (layer == nullptr || !item.key().starts_with("layer3.0.")) continue;
    const bool halves = item.key() == "layer3.0.conv2" || item.key() == "layer3.0.downsample.0";
    EXPECT_EQ((*layer->options.stride())[0], halves ? 2 : 1) << item.key();
  }
}

}  // namespace
}  // namespace lockstep::nn
