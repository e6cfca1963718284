// torchvision's numbers are those of tests/conformance/models.py, which says how they are made.

#include "lockstep/nn/models/resnet.h"

#include <algorithm>
#include <cmath>
#include <fstream>
#include <sstream>
#include <vector>

#include <gtest/gtest.h>

#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/zeros_like.h>
#include <torch/nn/modules/conv.h>
#include <torch/utils.h>

#include "lockstep/core/error.h"
#include "lockstep/nn/models/model.h"

#include "tests/nn/model_inputs.h"

namespace lockstep::nn {
namespace {

struct Sums {
  double norm = 0, dot = 0;
};

struct Expected {
  std::string name, shape;
  Sums seed0, after;
};

struct Reference {
  std::vector<Expected> tensors;
  std::vector<double> evaluated, trained;
};

std::vector<double> rest_of(std::istringstream& line) {
  std::vector<double> values;
  for (double value = 0; line >> value;) values.push_back(value);
  return values;
}

Reference reference(const std::string& model) {
  std::ifstream file(LOCKSTEP_CONFORMANCE_DIR "/models/" + model + ".txt");
  EXPECT_TRUE(file) << model;
  Reference found;
  for (std::string text, kind, name; std::getline(file, text);) {
    std::istringstream line(text);
    line >> kind >> name;
    if (kind == "logits") (name == "eval" ? found.evaluated : found.trained) = rest_of(line);
    if (kind != "tensor") continue;
    Expected tensor{.name = name, .shape = {}, .seed0 = {}, .after = {}};
    line >> tensor.shape >> tensor.seed0.norm >> tensor.seed0.dot;
    line >> tensor.after.norm >> tensor.after.dot;
    EXPECT_TRUE(line) << text;
    found.tensors.push_back(tensor);
  }
  return found;
}

// SplitMix64, its upper 53 bits: value() of the script.
double value(std::uint64_t tensor, std::uint64_t index) {
  std::uint64_t x = index + (tensor << 40) + 0x9E3779B97F4A7C15;
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EB;
  return static_cast<double>((x ^ (x >> 31)) >> 11) * 0x1p-53;
}

constexpr std::uint64_t kImages = 1000, kScores = 1001, kDot = 1002;

torch::Tensor values(std::uint64_t tensor, at::IntArrayRef sizes) {
  auto result = at::empty(sizes, at::kDouble);
  auto* out = result.mutable_data_ptr<double>();
  for (std::int64_t i = 0; i < result.numel(); ++i) {
    out[i] = value(tensor, static_cast<std::uint64_t>(i));
  }
  return result;
}

torch::Tensor even(std::uint64_t tensor, at::IntArrayRef sizes) {
  return values(tensor, sizes) * 2 - 1;
}

torch::Tensor filled(std::uint64_t place, const std::string& name, const torch::Tensor& tensor) {
  if (name.ends_with("num_batches_tracked")) return at::zeros_like(tensor);
  const auto drawn = values(place, tensor.sizes());
  if (name.ends_with("running_var") || (name.ends_with("weight") && tensor.dim() == 1)) {
    return drawn + 0.5;
  }
  if (tensor.dim() == 1) return drawn - 0.5;
  const auto fan_in = static_cast<double>(tensor[0].numel());
  return (drawn * 2 - 1) * std::sqrt(6 / fan_in);
}

Sums sums(const torch::Tensor& tensor) {
  const auto flat = tensor.detach().to(at::kDouble).contiguous().flatten();
  return {flat.norm().item<double>(), flat.dot(values(kDot, {flat.numel()})).item<double>()};
}

void expect_near(const Sums& ours, const Sums& theirs, double relative, const std::string& name) {
  const double size = std::max(theirs.norm, 1e-3);
  EXPECT_NEAR(ours.norm, theirs.norm, relative * size) << name;
  // The factors are below 1, so that the sum's rounding grows with the norm and the root of n.
  EXPECT_NEAR(ours.dot, theirs.dot, 10 * relative * size) << name;
}

double distance(const torch::Tensor& logits, std::vector<double> expected) {
  const auto theirs = at::from_blob(expected.data(), {4, 10}, at::kDouble);
  const auto difference = logits.detach().to(at::kDouble) - theirs;
  return (difference.norm() / theirs.norm()).item<double>();
}

std::string shape_text(const torch::Tensor& tensor) {
  std::string text;
  for (const auto size : tensor.sizes()) text = concat(text, text.empty() ? "" : "x", size);
  return text.empty() ? "scalar" : text;
}

torch::OrderedDict<std::string, torch::Tensor> state(const Model& model) {
  auto tensors = model->named_parameters();
  tensors.update(model->named_buffers());
  return tensors;
}

void fill(Model& model, const Reference& theirs) {
  const at::NoGradGuard no_grad;
  auto tensors = state(model);
  for (std::size_t i = 0; i < theirs.tensors.size(); ++i) {
    const auto& name = theirs.tensors[i].name;
    tensors[name].copy_(filled(i, name, tensors[name]));
  }
}

class ResNet : public ::testing::TestWithParam<std::string> {
 protected:
  ResNet() : theirs_(reference(GetParam())) {
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

TEST_P(ResNet, HasTorchvisionsNamesAndShapes) {
  const auto tensors = state(model_);
  EXPECT_EQ(tensors.size(), theirs_.tensors.size());
  for (const auto& expected : theirs_.tensors) {
    ASSERT_TRUE(tensors.contains(expected.name)) << expected.name;
    EXPECT_EQ(shape_text(tensors[expected.name]), expected.shape) << expected.name;
  }
}

TEST_P(ResNet, ListsParametersInTorchvisionsOrder) {
  std::vector<std::string> expected;
  for (const auto& tensor : theirs_.tensors) {
    if (model_->named_parameters().contains(tensor.name)) expected.push_back(tensor.name);
  }
  EXPECT_EQ(model_->named_parameters().keys(), expected);
}

TEST_P(ResNet, StartsWithTorchvisionsWeightsForTheSameSeed) {
  // torchvision has no ResNet with CIFAR's stem.
  if (GetParam() == "resnet18-cifar") {
    EXPECT_EQ(model_->named_parameters()["conv1.weight"].size(2), 3);
    return;
  }
  const auto tensors = state(model_);
  for (const auto& expected : theirs_.tensors) {
    expect_near(sums(tensors[expected.name]), expected.seed0, 1e-6, expected.name);
  }
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
  const auto images = even(kImages, {4, 3, 64, 64});
  EXPECT_LT(distance(model_(images), theirs_.evaluated), 1e-10);
  model_->to(at::kFloat);
  EXPECT_LT(distance(model_(images.to(at::kFloat)), theirs_.evaluated), 1e-5);
}

TEST_P(ResNet, TrainsAsTorchvision) {
  take_their_weights();
  const auto logits = model_(even(kImages, {4, 3, 64, 64}));
  EXPECT_LT(distance(logits, theirs_.trained), 1e-10);
  logits.backward(even(kScores, {4, 10}));
  const auto parameters = model_->named_parameters(), buffers = model_->named_buffers();
  for (const auto& expected : theirs_.tensors) {
    const auto* parameter = parameters.find(expected.name);
    const auto after = parameter != nullptr ? parameter->grad() : buffers[expected.name];
    expect_near(sums(after), expected.after, 1e-10, expected.name);
  }
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
    try {
      model_(images);
      FAIL();
    } catch (const InvalidArgument& error) {
      EXPECT_EQ(
          error.what(),
          concat(GetParam(), ": takes images of [N, 3, height, width], not ", images.sizes()));
    }
  }
}

INSTANTIATE_TEST_SUITE_P(
    Torchvision,
    ResNet,
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
