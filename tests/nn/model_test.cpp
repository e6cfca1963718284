#include "lockstep/nn/models/model.h"

#include <cmath>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <memory>
#include <numeric>
#include <set>
#include <utility>
#include <vector>

#include "tests/nn/model_inputs.h"
#include "tests/support/message_of.h"
#include <ATen/ops/randn.h>
#include <torch/nn/cloneable.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/linear.h>
#include <torch/utils.h>

#include "lockstep/core/error.h"
#include "lockstep/nn/autocast.h"
#include "lockstep/nn/models/layers.h"
#include "lockstep/nn/models/row_linear.h"
#include "lockstep/nn/named_state.h"

namespace lockstep::nn {
namespace {

using lockstep::testing::message_of;
using ::testing::ElementsAre;

std::int64_t parameter_count(const Model& model) {
  std::int64_t count = 0;
  for (const auto& parameter : model->parameters()) count += parameter.numel();
  return count;
}

TEST(Model, HasTheParametersOfTheStudies) {
  EXPECT_EQ(parameter_count(make_model("toy", 5)), 165);
  EXPECT_EQ(parameter_count(make_model("mnist-small", 10)), 402442);
  EXPECT_EQ(parameter_count(make_model("mnist-large", 10)), 4104202);
}

TEST(Model, NamesParametersAsPython) {
  EXPECT_THAT(make_model("mnist-small", 10)->named_parameters().keys(),
      ElementsAre("0.weight", "0.bias", "4.weight", "4.bias", "6.weight", "6.bias"));
  EXPECT_THAT(make_model("mnist-large", 10)->named_parameters().keys(),
      ElementsAre("0.weight", "0.bias", "3.weight", "3.bias", "6.weight", "6.bias", "10.weight",
          "10.bias", "12.weight", "12.bias", "14.weight", "14.bias"));
  EXPECT_THAT(make_model("toy", 5)->named_parameters().keys(),
      ElementsAre("net1.weight", "net1.bias", "net2.weight", "net2.bias"));
}

// PyTorch draws weight and bias evenly from +-1/sqrt(fan in).
TEST(Model, StartsAsPyTorchDoes) {
  torch::manual_seed(1);
  const auto parameters = make_model("mnist-small", 10)->named_parameters();
  const auto expect_even = [&](const char* name, double fan_in) {
    const auto values = parameters[name].detach();
    const double bound = 1 / std::sqrt(fan_in);
    EXPECT_LE(values.abs().max().item<double>(), bound) << name;
    EXPECT_GT(values.abs().max().item<double>(), 0.9 * bound) << name;
    EXPECT_NEAR(values.std().item<double>() / bound, 1 / std::sqrt(3.0), 0.08) << name;
  };
  expect_even("0.weight", 9);
  expect_even("4.weight", 6272);
  expect_even("6.weight", 64);
  EXPECT_LE(parameters["4.bias"].abs().max().item<double>(), 1 / std::sqrt(6272.0));
}

TEST(Model, IsTheSameForTheSameSeed) {
  torch::manual_seed(7);
  const auto first = make_model("mnist-large", 10)->parameters();
  torch::manual_seed(7);
  const auto second = make_model("mnist-large", 10)->parameters();
  for (std::size_t i = 0; i < first.size(); ++i) EXPECT_TRUE(first[i].equal(second[i]));
}

// The same net from LibTorch's parts in LibTorch's default layout.
torch::Tensor small_by_hand(const Model& model, const torch::Tensor& images) {
  const auto p = model->named_parameters();
  auto x = at::max_pool2d(at::conv2d(images, p["0.weight"], p["0.bias"], 1, 1).relu(), 2);
  x = at::linear(x.flatten(1), p["4.weight"], p["4.bias"]).relu();
  return at::linear(x, p["6.weight"], p["6.bias"]);
}

torch::Tensor large_by_hand(const Model& model, const torch::Tensor& images) {
  const auto p = model->named_parameters();
  auto x = images;
  for (const std::string layer : {"0", "3", "6"}) {
    x = at::conv2d(x, p[layer + ".weight"].contiguous(), p[layer + ".bias"], 1, 1);
    x = at::max_pool2d(x.relu(), 2);
  }
  x = x.flatten(1);
  for (const std::string layer : {"10", "12"}) {
    x = at::linear(x, p[layer + ".weight"], p[layer + ".bias"]).relu();
  }
  return at::linear(x, p["14.weight"], p["14.bias"]);
}

void expect_same_gradients(
    Model& model, torch::Tensor (*by_hand)(const Model&, const torch::Tensor&)) {
  const auto images = at::randn({5, 1, 28, 28});
  const auto weights = at::randn({5, 10});
  const auto gradients = [&](const torch::Tensor& logits) {
    model->zero_grad();
    (logits * weights).sum().backward();
    std::vector<torch::Tensor> copies;
    for (const auto& parameter : model->parameters()) copies.push_back(parameter.grad().clone());
    return copies;
  };
  const auto ours = model(images), theirs = by_hand(model, images);
  EXPECT_TRUE(at::allclose(ours, theirs, 1e-5, 1e-5));
  const auto our_gradients = gradients(ours), their_gradients = gradients(theirs);
  for (std::size_t i = 0; i < our_gradients.size(); ++i) {
    const auto size = their_gradients[i].abs().max().item<double>();
    EXPECT_TRUE(at::allclose(our_gradients[i], their_gradients[i], 1e-5, 1e-5 * size)) << i;
  }
}

TEST(Model, ComputesWhatTheChainOfLayersComputes) {
  torch::manual_seed(3);
  auto small = make_model("mnist-small", 10), large = make_model("mnist-large", 10);
  expect_same_gradients(small, small_by_hand);
  expect_same_gradients(large, large_by_hand);
}

TEST(Model, ComputesInBFloat16UnderAutocast) {
  torch::manual_seed(3);
  for (const char* name : {"mnist-small", "mnist-large"}) {
    auto model = make_model(name, 10);
    const auto images = at::rand({4, 1, 28, 28});
    const auto full = model(images);
    const Autocast autocast(at::kCPU);
    const auto shorter = model(images.to(at::kBFloat16));
    EXPECT_EQ(shorter.scalar_type(), at::kBFloat16);
    EXPECT_TRUE(at::allclose(shorter.to(at::kFloat), full, 0, 0.02)) << name;
  }
}

// By whose type FullyShardedDataParallel knows that a weight can be gathered in a shorter one.
TEST(RowLinear, IsEveryLinearLayerOfTheNets) {
  for (const char* name : {"toy", "mnist-small", "mnist-large", "resnet18-cifar", "llama-260k"}) {
    int layers = 0;
    for (const auto& module : make_model(name, 10)->modules()) {
      if (module->as<torch::nn::LinearImpl>() == nullptr) continue;
      EXPECT_TRUE(is_row_linear(*module)) << name;
      ++layers;
    }
    EXPECT_GT(layers, 0) << name;
  }
}

TEST(RowLinear, ComputesWhatLibTorchsDoes) {
  for (const bool has_bias : {true, false}) {
    const auto options = torch::nn::LinearOptions(6, 5).bias(has_bias);
    RowLinear layer(options);
    torch::nn::Linear theirs(options);
    theirs->weight.set_data(layer->weight);
    if (has_bias) theirs->bias.set_data(layer->bias);
    const auto copy = std::dynamic_pointer_cast<RowLinearImpl>(layer->clone());
    ASSERT_TRUE(copy);
    for (const auto& input : {at::randn({3, 6}), at::randn({2, 3, 6})}) {
      EXPECT_TRUE(at::allclose(layer(input), theirs(input)));
      EXPECT_TRUE(at::equal(layer(input), copy->forward(input)));
    }
  }
}

TEST(Model, RefusesOtherImages) {
  auto model = make_model("mnist-small", 10);
  EXPECT_EQ(message_of<InvalidArgument>([&] {
    model(at::randn({3, 3, 32, 32}));
  }),
      "mnist net: takes images of [N, 1, 28, 28], not [3, 3, 32, 32]");
  EXPECT_THROW(make_model("toy", 5)(at::randn({3, 11})), InvalidArgument);
}

TEST(Model, ListsTheNamesWhenThereIsNoSuchNet) {
  EXPECT_EQ(message_of<InvalidArgument>([] { make_model("mnist", 10); }),
      "make_model: there is no such net: mnist; there are toy, mnist-small, mnist-large, "
      "resnet18, resnet18-cifar, resnet34, resnet50, vgg11, vgg11-bn, vgg13, vgg13-bn, vgg16, "
      "vgg16-bn, vgg19, vgg19-bn, gpt2-nano, gpt2, gpt2-medium, gpt2-large, gpt2-xl, llama-260k, "
      "llama-15m, llama-110m, and files *.pt2 of torch.export; did you mean mnist-small?");
  EXPECT_THAT(message_of<InvalidArgument>([] { make_model("net.pth", 10); }),
      ::testing::EndsWith("; such a file is taken as weights, by --pretrained; Python's "
                          "lockstep.export() writes a net as .pt2"));
  EXPECT_THROW(make_model("toy", 0), InvalidArgument);
}

// What pipelines rest on: a model is a chain that can be cut before any layer.

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
  const auto expected = named_state(*model);
  std::size_t found = 0;
  std::set<const void*> seen;
  for (const auto& layer : model->layers()) {
    for (const auto& item : named_state(*layer.value().ptr())) {
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
  EXPECT_EQ(message_of<InvalidArgument>([&] { layer_index(layers, "net"); }),
      "layer_index: there is no such layer: net; there are input, net1, relu, net2");
}

Model cloned(const Model& model) {
  return Model(std::dynamic_pointer_cast<ModelImpl>(model->clone()));
}

void expect_equal_values_in_own_storage(const NamedTensors& copies, const NamedTensors& originals) {
  ASSERT_EQ(copies.keys(), originals.keys());
  for (const auto& item : originals) {
    const auto& copy = copies[item.key()];
    EXPECT_TRUE(copy.equal(item.value())) << item.key();
    EXPECT_NE(copy.storage().data(), item.value().storage().data()) << item.key();
    EXPECT_EQ(copy.strides(), item.value().strides()) << item.key();
    EXPECT_EQ(copy.requires_grad(), item.value().requires_grad()) << item.key();
    EXPECT_TRUE(copy.is_leaf()) << item.key();
  }
}

class CloneOf : public ::testing::TestWithParam<std::string> {
 protected:
  CloneOf() { torch::manual_seed(9); }

  // One that has been trained a little, so that its buffers are no longer those of the start.
  Model used_model() {
    auto model = make_model(GetParam(), 7);
    model(images_for(GetParam(), 4)).sum().backward();
    return model;
  }
};

TEST_P(CloneOf, HasEqualValuesInOwnStorage) {
  const auto model = used_model();
  model->parameters()[1].requires_grad_(false);
  const auto copy = cloned(model);
  expect_equal_values_in_own_storage(named_state(*copy), named_state(*model));
  for (const auto& parameter : copy->parameters()) EXPECT_FALSE(parameter.grad().defined());
}

TEST_P(CloneOf, ComputesTheSameBitsWithItsOwnParameters) {
  auto model = used_model();
  const auto images = images_for(GetParam(), 3);
  const auto scores = [&](Model& net) {
    torch::manual_seed(4);  // of dropout
    return net(images).detach();
  };
  auto copy = cloned(model);
  const auto expected = scores(model);
  EXPECT_TRUE(scores(copy).equal(expected));
  const at::NoGradGuard no_grad;
  for (auto& parameter : copy->parameters()) parameter.zero_();
  EXPECT_TRUE(scores(copy).eq(0).all().item<bool>());
  EXPECT_TRUE(scores(model).equal(expected));
}

TEST_P(CloneOf, KeepsTheTrainingFlagOfEachModule) {
  auto model = make_model(GetParam(), 7);
  model->eval();
  model->children().front()->train();
  const auto modules = model->modules(), copies = cloned(model)->modules();
  ASSERT_EQ(copies.size(), modules.size());
  for (std::size_t i = 0; i < modules.size(); ++i) {
    EXPECT_EQ(copies[i]->is_training(), modules[i]->is_training()) << modules[i]->name();
  }
}

TEST_P(CloneOf, EachLayerComputesTheSameBits) {
  auto model = used_model();
  model->eval();
  auto values = images_for(GetParam(), 3);
  for (auto& layer : model->layers()) {
    auto copy = layer.value().clone();
    const auto given = values.detach();
    expect_equal_values_in_own_storage(named_state(*copy.ptr()), named_state(*layer.value().ptr()));
    values = layer.value().forward(given);
    EXPECT_TRUE(copy.forward(given).equal(values)) << layer.key();
  }
}

INSTANTIATE_TEST_SUITE_P(Clone, CloneOf, ::testing::ValuesIn(models_of_each_kind()),
    [](const auto& test) { return test_name(test.param); });

TEST(Clone, KeepsTheType) {
  auto model = make_model("resnet18-cifar", 4);
  model->to(at::kDouble);
  expect_equal_values_in_own_storage(named_state(*cloned(model)), named_state(*model));
}

// Where the tensors are there already, they are copied all the same.
TEST(Clone, CopiesToTheDeviceThatIsNamed) {
  const auto model = make_model("resnet18-cifar", 4);
  expect_equal_values_in_own_storage(named_state(*model->clone(at::kCPU)), named_state(*model));
}

// A user's module, made as LibTorch's documentation says, with one of ours inside.
struct HolderImpl : torch::nn::Cloneable<HolderImpl> {
  HolderImpl() { reset(); }
  void reset() override {
    model = register_module("model", make_model("resnet18-cifar", 4));
    small = register_module("small", make_model("mnist-small", 4));
  }
  Model model{nullptr}, small{nullptr};
};

TEST(Clone, WorksInsideACloneableOfTheUser) {
  HolderImpl holder;
  const auto copy = std::dynamic_pointer_cast<HolderImpl>(holder.clone());
  expect_equal_values_in_own_storage(named_state(*copy), named_state(holder));
  // The holder's member and its registered child are the same net.
  EXPECT_TRUE(copy->model->parameters()[0].is_same(copy->parameters()[0]));
  EXPECT_TRUE(copy->model->layers()["fc"].ptr()->parameters()[0].equal(
      holder.model->named_parameters()["fc.weight"]));
}

TEST(Clone, RefusesAModelWhosePartsWereReplaced) {
  auto model = make_model("toy", 5);
  model->replace_module("net1", torch::nn::Linear(torch::nn::LinearOptions(10, 10).bias(false)));
  EXPECT_THROW(model->clone(), Error);
  // The same names, another module.
  model->replace_module("net1", torch::nn::Bilinear(2, 2, 2));
  EXPECT_THROW(model->clone(), Error);
}

}  // namespace
}  // namespace lockstep::nn
