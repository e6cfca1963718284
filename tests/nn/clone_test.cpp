#include "lockstep/nn/models/clone.h"

#include <gtest/gtest.h>
#include <utility>

#include "tests/nn/model_inputs.h"
#include <torch/nn/cloneable.h>
#include <torch/nn/modules/linear.h>
#include <torch/utils.h>

#include "lockstep/core/error.h"
#include "lockstep/nn/models/model.h"

namespace lockstep::nn {
namespace {

using NamedTensors = torch::OrderedDict<std::string, torch::Tensor>;

Model cloned(const Model& model) {
  return Model(std::dynamic_pointer_cast<ModelImpl>(model->clone()));
}

NamedTensors state(const torch::nn::Module& module) {
  auto tensors = module.named_parameters();
  tensors.update(module.named_buffers());
  return tensors;
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
  expect_equal_values_in_own_storage(state(*copy), state(*model));
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
    expect_equal_values_in_own_storage(state(*copy.ptr()), state(*layer.value().ptr()));
    values = layer.value().forward(given);
    EXPECT_TRUE(copy.forward(given).equal(values)) << layer.key();
  }
}

INSTANTIATE_TEST_SUITE_P(Clone, CloneOf, ::testing::ValuesIn(models_of_each_kind()),
    [](const auto& test) { return test_name(test.param); });

TEST(Clone, KeepsTheType) {
  auto model = make_model("resnet18-cifar", 4);
  model->to(at::kDouble);
  expect_equal_values_in_own_storage(state(*cloned(model)), state(*model));
}

// Where the tensors are there already, they are copied all the same.
TEST(Clone, CopiesToTheDeviceThatIsNamed) {
  const auto model = make_model("resnet18-cifar", 4);
  expect_equal_values_in_own_storage(state(*model->clone(at::kCPU)), state(*model));
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
  expect_equal_values_in_own_storage(state(*copy), state(holder));
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
