#include "lockstep/train/optim/freeze.h"

#include <functional>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <torch/nn/modules/batchnorm.h>

#include "lockstep/core/error.h"
#include "lockstep/nn/models/model.h"

namespace lockstep {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::vector<std::string> trained_names(const nn::Model& model) {
  std::vector<std::string> names;
  for (const auto& item : model->named_parameters()) {
    if (item.value().requires_grad()) names.push_back(item.key());
  }
  return names;
}

std::string message_of(const std::function<void()>& body) {
  try {
    body();
  } catch (const InvalidArgument& error) {
    return error.what();
  }
  return "nothing was thrown";
}

TEST(Freeze, TakesTheParametersOfAPattern) {
  auto model = nn::make_model("mnist-small", 10);
  const Frozen frozen = freeze(*model, {"0.*"});
  EXPECT_EQ(frozen.parameters, 2);
  EXPECT_EQ(frozen.elements, 320);
  EXPECT_THAT(trained_names(model), ElementsAre("4.weight", "4.bias", "6.weight", "6.bias"));
}

TEST(Freeze, TakesAllThatAnyPatternMatches) {
  auto model = nn::make_model("mnist-small", 10);
  EXPECT_EQ(freeze(*model, {"0.*", "*.bias", "?.bias"}).parameters, 4);
  EXPECT_THAT(trained_names(model), ElementsAre("4.weight", "6.weight"));
}

TEST(Freeze, LetsAStarStandForDots) {
  auto model = nn::make_model("resnet18-cifar", 10);
  freeze(*model, {"[bcl]*"});
  EXPECT_THAT(trained_names(model), ElementsAre("fc.weight", "fc.bias"));
}

TEST(Freeze, RefusesAPatternThatMatchesNothing) {
  auto model = nn::make_model("resnet18-cifar", 10);
  EXPECT_EQ(
      message_of([&] {
        freeze(*model, {"fc.*", "layer5.*"});
      }),
      "train: --freeze matches no parameter: layer5.*; their names are conv1.*, bn1.*, layer1.*, "
      "layer2.*, layer3.*, layer4.*, fc.*, such as conv1.weight");
  EXPECT_EQ(trained_names(model).size(), model->parameters().size());
}

TEST(Freeze, RefusesToLeaveNothing) {
  auto model = nn::make_model("toy", 5);
  EXPECT_THAT(message_of([&] { freeze(*model, {"*"}); }), HasSubstr("leaves no parameter"));
}

TEST(Freeze, KeepsBatchNormsInEvaluationThatAreWhollyFrozen) {
  auto model = nn::make_model("resnet18-cifar", 10);
  const Frozen frozen = freeze(*model, {"layer1.*", "bn1.weight"});
  EXPECT_EQ(frozen.norms.size(), 4U);
  model->train();
  keep_in_evaluation(frozen);
  for (const auto& item : model->named_modules()) {
    if (item.value()->as<torch::nn::BatchNorm2d>() == nullptr) continue;
    EXPECT_EQ(item.value()->is_training(), !item.key().starts_with("layer1.")) << item.key();
  }
}

}  // namespace
}  // namespace lockstep
