#include "lockstep/nn/models/model.h"

#include <cmath>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <numeric>

#include "tests/support/message_of.h"
#include <ATen/ops/randn.h>
#include <torch/nn/modules/conv.h>
#include <torch/utils.h>

#include "lockstep/core/error.h"
#include "lockstep/nn/autocast.h"

namespace lockstep::nn {
namespace {

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

TEST(Model, GivesOneRowOfLogitsAnImage) {
  for (const char* name : {"mnist-small", "mnist-large"}) {
    auto model = make_model(name, 7);
    EXPECT_EQ(model(at::randn({3, 1, 28, 28})).sizes(), (std::vector<std::int64_t>{3, 7})) << name;
  }
  EXPECT_EQ(make_model("toy", 5)(at::randn({4, 10})).sizes(), (std::vector<std::int64_t>{4, 5}));
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

TEST(Model, RefusesOtherImages) {
  auto model = make_model("mnist-small", 10);
  EXPECT_EQ(lockstep::testing::message_of<InvalidArgument>([&] {
    model(at::randn({3, 3, 32, 32}));
  }),
      "mnist net: takes images of [N, 1, 28, 28], not [3, 3, 32, 32]");
  EXPECT_THROW(make_model("toy", 5)(at::randn({3, 11})), InvalidArgument);
}

TEST(Model, ListsTheNamesWhenThereIsNoSuchNet) {
  EXPECT_EQ(lockstep::testing::message_of<InvalidArgument>([] { make_model("mnist", 10); }),
      "make_model: there is no such net: mnist; there are toy, mnist-small, mnist-large, "
      "resnet18, resnet18-cifar, resnet34, resnet50, vgg11, vgg11-bn, vgg13, vgg13-bn, vgg16, "
      "vgg16-bn, vgg19, vgg19-bn");
  EXPECT_THROW(make_model("toy", 0), InvalidArgument);
}

}  // namespace
}  // namespace lockstep::nn
