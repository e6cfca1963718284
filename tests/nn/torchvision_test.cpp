// torchvision's numbers are those of tests/conformance/models.py, which says how they are made.

#include "lockstep/nn/models/torchvision.h"

#include <algorithm>
#include <cmath>
#include <fstream>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sstream>
#include <string>
#include <vector>

#include "tests/nn/model_inputs.h"
#include "tests/support/message_of.h"
#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/randn.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/dropout.h>
#include <torch/ordered_dict.h>
#include <torch/types.h>
#include <torch/utils.h>

#include "lockstep/core/error.h"
#include "lockstep/nn/models/model.h"
#include "lockstep/nn/named_state.h"

namespace lockstep::nn {
namespace {

using lockstep::testing::message_of;

/// Stands for a tensor: its 2-norm, and the sum of its elements times factors from a formula.
struct Sums {
  double norm = 0, dot = 0;
};

/// The results of a model of torchvision, as tests/conformance/models.py has written them.
struct Reference {
  struct TensorSums {
    std::string name, shape;
    Sums seed0;  ///< as manual_seed(0) and the constructor leave it
    Sums after;  ///< a parameter's gradient, or a buffer, after one step of training
  };
  std::vector<TensorSums> tensors;         // of the state dictionary, in its order
  std::vector<double> evaluated, trained;  // logits
};

// SplitMix64, its upper 53 bits: value() of the script.
double value(std::uint64_t tensor, std::uint64_t index) {
  std::uint64_t x = index + (tensor << 40) + 0x9E3779B97F4A7C15;
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EB;
  return static_cast<double>((x ^ (x >> 31)) >> 11) * 0x1p-53;
}

constexpr std::uint64_t kImages = 1000, kScores = 1001, kDot = 1002;

// Makes no temporary of the size of a tensor: those of a VGG are large.
template <typename Element>
torch::Tensor formula(std::uint64_t tensor, at::IntArrayRef sizes, double factor, double addend,
    at::ScalarType type) {
  auto result = at::empty(sizes, type);
  auto* out = result.mutable_data_ptr<Element>();
  for (std::int64_t i = 0; i < result.numel(); ++i) {
    const double number = factor * value(tensor, static_cast<std::uint64_t>(i)) + addend;
    out[i] = static_cast<Element>(number);
  }
  return result;
}

void fill_tensor(torch::Tensor& tensor, std::uint64_t place, double factor, double addend) {
  const auto numbers = tensor.scalar_type() == at::kDouble
                           ? formula<double>(place, tensor.sizes(), factor, addend, at::kDouble)
                           : formula<float>(place, tensor.sizes(), factor, addend, at::kFloat);
  tensor.copy_(numbers);
}

void fill_tensor(torch::Tensor& tensor, std::uint64_t place, const std::string& name) {
  if (name.ends_with("num_batches_tracked")) {
    tensor.zero_();
  } else if (name.ends_with("running_var") || (name.ends_with("weight") && tensor.dim() == 1)) {
    fill_tensor(tensor, place, 1, 0.5);
  } else if (tensor.dim() == 1) {
    fill_tensor(tensor, place, 1, -0.5);
  } else {
    const double bound = std::sqrt(6 / static_cast<double>(tensor[0].numel()));
    fill_tensor(tensor, place, 2 * bound, -bound);
  }
}

std::vector<double> rest_of(std::istringstream& line) {
  std::vector<double> values;
  for (double number = 0; line >> number;) values.push_back(number);
  return values;
}

Reference::TensorSums tensor_of(const std::string& name, std::istringstream& line) {
  Reference::TensorSums tensor{.name = name, .shape = {}, .seed0 = {}, .after = {}};
  line >> tensor.shape >> tensor.seed0.norm >> tensor.seed0.dot;
  line >> tensor.after.norm >> tensor.after.dot;
  EXPECT_TRUE(line) << name;
  return tensor;
}

template <typename Element>
Sums sums_of(const torch::Tensor& flat) {
  const auto* numbers = flat.const_data_ptr<Element>();
  double squares = 0, dot = 0;
  for (std::int64_t i = 0; i < flat.numel(); ++i) {
    const auto number = static_cast<double>(numbers[i]);
    squares += number * number;
    dot += number * value(kDot, static_cast<std::uint64_t>(i));
  }
  return {std::sqrt(squares), dot};
}

/// Reads the numbers of a model from tests/conformance/models.
Reference read_reference(const std::string& model) {
  std::ifstream file(LOCKSTEP_CONFORMANCE_DIR "/models/" + model + ".txt");
  EXPECT_TRUE(file) << model;
  Reference found;
  for (std::string text, kind, name; std::getline(file, text);) {
    std::istringstream line(text);
    line >> kind >> name;
    if (kind == "logits") (name == "eval" ? found.evaluated : found.trained) = rest_of(line);
    if (kind == "tensor") found.tensors.push_back(tensor_of(name, line));
  }
  return found;
}

/// Gives the model the weights with which the script computed; they come from a formula.
void fill(Model& model, const Reference& reference) {
  const at::NoGradGuard no_grad;
  auto tensors = named_state(*model);
  for (std::size_t i = 0; i < reference.tensors.size(); ++i) {
    const auto& name = reference.tensors[i].name;
    fill_tensor(tensors[name], i, name);
  }
}

/// Returns the script's images, and what stands for their loss's gradient.
torch::Tensor reference_images() {
  return formula<double>(kImages, {4, 3, 64, 64}, 2, -1, at::kDouble);
}

torch::Tensor reference_gradient() { return formula<double>(kScores, {4, 10}, 2, -1, at::kDouble); }

/// Returns a shape as the script writes it: `64x3x7x7`, `scalar`.
std::string shape_text(const torch::Tensor& tensor) {
  std::string text;
  for (const auto size : tensor.sizes()) text = concat(text, text.empty() ? "" : "x", size);
  return text.empty() ? "scalar" : text;
}

Sums sums(const torch::Tensor& tensor) {
  const auto flat = tensor.detach().contiguous();
  if (flat.scalar_type() == at::kFloat) return sums_of<float>(flat);
  return sums_of<double>(flat.to(at::kDouble));
}

/// Expects that both stand for the same tensor, up to a part `relative` of its norm.
void expect_near(const Sums& ours, const Sums& theirs, double relative, const std::string& name) {
  const double size = std::max(theirs.norm, 1e-3);
  EXPECT_NEAR(ours.norm, theirs.norm, relative * size) << name;
  // The factors are below 1, so that the sum's rounding grows with the norm and the root of n.
  EXPECT_NEAR(ours.dot, theirs.dot, 10 * relative * size) << name;
}

/// Returns the norm of the logits' difference as a part of theirs.
double distance(const torch::Tensor& logits, const std::vector<double>& theirs) {
  const auto expected = at::from_blob(const_cast<double*>(theirs.data()), {4, 10}, at::kDouble);
  const auto difference = logits.detach().to(at::kDouble) - expected;
  return (difference.norm() / expected.norm()).item<double>();
}

/// Expects torchvision's names, shapes and order.
void expect_alike(const Model& model, const Reference& reference) {
  const auto tensors = named_state(*model);
  const auto parameters = model->named_parameters();
  EXPECT_EQ(tensors.size(), reference.tensors.size());
  std::vector<std::string> order;
  for (const auto& expected : reference.tensors) {
    ASSERT_TRUE(tensors.contains(expected.name)) << expected.name;
    EXPECT_EQ(shape_text(tensors[expected.name]), expected.shape) << expected.name;
    if (parameters.contains(expected.name)) order.push_back(expected.name);
  }
  EXPECT_EQ(parameters.keys(), order);
}

/// Expects what torchvision's constructor makes of the same seed.
void expect_seed0(const Model& model, const Reference& reference) {
  const auto tensors = named_state(*model);
  for (const auto& expected : reference.tensors) {
    expect_near(sums(tensors[expected.name]), expected.seed0, 1e-6, expected.name);
  }
}

/// Expects gradients and buffers as after the script's step; nets in double.
void expect_trained(const Model& model, const Reference& reference) {
  const auto parameters = model->named_parameters(), buffers = model->named_buffers();
  for (const auto& expected : reference.tensors) {
    const auto* parameter = parameters.find(expected.name);
    const auto after = parameter != nullptr ? parameter->grad() : buffers[expected.name];
    expect_near(sums(after), expected.after, 1e-10, expected.name);
  }
}

/// Expects channels-last weights and maps, in whatever order the images come.
void expect_channels_last(Model& model, const torch::Tensor& images) {
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

void expect_refuses_other_images(Model& model, const std::string& name) {
  for (const auto& images : {at::randn({2, 1, 32, 32}), at::randn({3, 32, 32})}) {
    EXPECT_EQ(message_of<InvalidArgument>([&] { model(images); }),
        concat(name, ": takes images of [N, 3, height, width], not ", images.sizes()));
  }
}

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

// torchvision has no ResNet with CIFAR's stem: its convolutions are drawn from Kaiming's fan out.
TEST_P(ResNet, StartsWithTorchvisionsWeightsForTheSameSeed) {
  if (GetParam() != "resnet18-cifar") return expect_seed0(model_, theirs_);
  EXPECT_EQ(model_->named_parameters()["conv1.weight"].size(2), 3);
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
  expect_channels_last(model_, images_for(GetParam(), 2));
}

TEST_P(ResNet, RefusesOtherImages) { expect_refuses_other_images(model_, GetParam()); }

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

// These nets are large (up to 0.6 GB), so that one test looks at several things.

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
  expect_channels_last(model, images_for("vgg11-bn", 2));
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
  expect_refuses_other_images(model, "vgg11");
}

}  // namespace
}  // namespace lockstep::nn
