#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <utility>

#include "tests/support/expected_numbers.h"
#include <ATen/ops/full_like.h>
#include <ATen/ops/ones.h>
#include <torch/optim/adam.h>
#include <torch/optim/adamw.h>
#include <torch/optim/sgd.h>

#include "lockstep/comm/process_group.h"
#include "lockstep/parallel/optim/sharded_optimizer.h"
#include "lockstep/train/optim/set_lr.h"
#include "lockstep/train/strategy/replica.h"

namespace lockstep {
namespace {

using ::testing::ElementsAre;

constexpr OptimizerKind kKinds[] = {
    OptimizerKind::kSgd, OptimizerKind::kAdam, OptimizerKind::kAdamW};

OptimizerSettings settings_of(OptimizerKind kind, DecayOn decay_on) {
  OptimizerSettings settings = default_settings(kind);
  settings.lr = 0.1;
  settings.momentum = 0;
  settings.weight_decay = 0.5;
  settings.weight_decay_on = decay_on;
  return settings;
}

// Those of a convolution, a batch norm and a linear layer.
std::vector<torch::Tensor> parameters() {
  std::vector<torch::Tensor> all;
  for (const std::vector<std::int64_t>& sizes :
      {std::vector<std::int64_t>{4, 3, 3, 3}, {4}, {4}, {4}, {5, 16}, {5}})
    all.push_back(at::ones(sizes, torch::kDouble).set_requires_grad(true));
  return all;
}

std::vector<double> elements_of(const torch::optim::OptimizerParamGroup& group) {
  std::vector<double> counts;
  for (const auto& parameter : group.params())
    counts.push_back(static_cast<double>(parameter.numel()));
  return counts;
}

double weight_decay_of(const torch::optim::OptimizerParamGroup& group, OptimizerKind kind) {
  using torch::optim::AdamOptions, torch::optim::AdamWOptions, torch::optim::SGDOptions;
  const auto& options = group.options();
  if (kind == OptimizerKind::kSgd) return static_cast<const SGDOptions&>(options).weight_decay();
  if (kind == OptimizerKind::kAdam) return static_cast<const AdamOptions&>(options).weight_decay();
  return static_cast<const AdamWOptions&>(options).weight_decay();
}

TEST(MakeOptimizer, AllDecayInOneGroup) {
  for (const auto kind : kKinds) {
    const auto optimizer = make_optimizer(settings_of(kind, DecayOn::kAll), parameters());
    ASSERT_EQ(optimizer->param_groups().size(), 1U) << name_of(kind);
    EXPECT_EQ(weight_decay_of(optimizer->param_groups()[0], kind), 0.5);
    EXPECT_EQ(optimizer->param_groups()[0].params().size(), 6U);
  }
}

TEST(MakeOptimizer, WeightsAloneDecayInTheGroupsOfTimm) {
  for (const auto kind : kKinds) {
    const auto optimizer = make_optimizer(settings_of(kind, DecayOn::kWeights), parameters());
    const auto& groups = optimizer->param_groups();
    ASSERT_EQ(groups.size(), 2U) << name_of(kind);
    EXPECT_EQ(weight_decay_of(groups[0], kind), 0);
    EXPECT_EQ(weight_decay_of(groups[1], kind), 0.5);
    EXPECT_EQ(
        elements_of(groups[0]), testing::expected_numbers("training.txt", "ElementsWithoutDecay"));
    EXPECT_EQ(
        elements_of(groups[1]), testing::expected_numbers("training.txt", "ElementsWithDecay"));
  }
}

// LibTorch takes this for a decay that was not said.
TEST(MakeOptimizer, ADecayThatIsTheUsualOneIsKept) {
  OptimizerSettings settings = settings_of(OptimizerKind::kAdamW, DecayOn::kWeights);
  settings.weight_decay = 0.01;
  const auto optimizer = make_optimizer(settings, parameters());
  EXPECT_EQ(weight_decay_of(optimizer->param_groups()[0], OptimizerKind::kAdamW), 0);
  EXPECT_EQ(weight_decay_of(optimizer->param_groups()[1], OptimizerKind::kAdamW), 0.01);
}

TEST(MakeOptimizer, AGroupWithoutParametersIsLeftOut) {
  const auto biases = std::vector<torch::Tensor>{parameters()[1], parameters()[5]};
  const auto optimizer =
      make_optimizer(settings_of(OptimizerKind::kSgd, DecayOn::kWeights), biases);
  ASSERT_EQ(optimizer->param_groups().size(), 1U);
  EXPECT_EQ(weight_decay_of(optimizer->param_groups()[0], OptimizerKind::kSgd), 0);
}

void step_with_gradient(torch::optim::Optimizer& optimizer, double gradient) {
  for (auto& group : optimizer.param_groups())
    for (auto& parameter : group.params())
      parameter.mutable_grad() = at::full_like(parameter, gradient);
  optimizer.step();
}

TEST(MakeOptimizer, DecayMovesTheWeightsAlone) {
  const auto all = parameters();
  const auto optimizer = make_optimizer(settings_of(OptimizerKind::kSgd, DecayOn::kWeights), all);
  step_with_gradient(*optimizer, 0);  // only the decay moves a parameter
  for (const auto& parameter : all)
    EXPECT_EQ(parameter.min().item<double>(), parameter.dim() > 1 ? 0.95 : 1);
}

TEST(MakeOptimizer, DecayMovesTheWeightsAloneWhereTheOptimizerIsSharded) {
  run_ranks(2, [](const ProcessGroup& world) {
    const auto all = parameters();
    ShardedOptimizer optimizer(
        make_optimizer(settings_of(OptimizerKind::kSgd, DecayOn::kWeights), all), world);
    set_lr(optimizer, 0.2);
    step_with_gradient(optimizer, 0);
    for (const auto& parameter : all)
      EXPECT_NEAR(parameter.max().item<double>(), parameter.dim() > 1 ? 0.9 : 1, 1e-15);
  });
}

OptimizerSettings without_decay(OptimizerKind kind, DecayOn decay_on) {
  OptimizerSettings settings = settings_of(kind, decay_on);
  settings.weight_decay = 0;
  return settings;
}

// By hand: the first step is 0.1 / (1 + eps) whatever the betas; the second, of a gradient of 0,
// is 0.1 * (0.25 / 0.75) / (sqrt(0.1875 / 0.4375) + eps).
TEST(MakeOptimizer, EpsilonAndBetasAreThoseOfTheSettings) {
  for (const auto kind : {OptimizerKind::kAdam, OptimizerKind::kAdamW}) {
    for (const auto decay_on : {DecayOn::kAll, DecayOn::kWeights}) {
      OptimizerSettings settings = without_decay(kind, decay_on);
      settings.eps = 1;
      settings.betas = AdamBetas{.first = 0.5, .second = 0.75};
      const auto all = parameters();
      const auto optimizer = make_optimizer(settings, all);
      step_with_gradient(*optimizer, 1);
      for (const auto& each : all) EXPECT_NEAR(each.max().item<double>(), 0.95, 1e-12);
      step_with_gradient(*optimizer, 0);
      for (const auto& each : all)
        EXPECT_NEAR(each.max().item<double>(), 0.929854797458, 1e-11) << name_of(kind);
    }
  }
}

// A gradient as small as epsilon shows it; the first step does not depend on the betas.
TEST(MakeOptimizer, TheUsualEpsilonIsThatOfTheKind) {
  for (const auto& [kind, eps] :
      {std::pair{OptimizerKind::kAdam, 1e-7}, {OptimizerKind::kAdamW, 1e-8}}) {
    const auto all = parameters();
    const auto optimizer = make_optimizer(without_decay(kind, DecayOn::kAll), all);
    step_with_gradient(*optimizer, eps);
    EXPECT_NEAR(all[0].max().item<double>(), 0.95, 1e-9) << name_of(kind);
  }
}

TEST(SetLr, ReachesEveryGroup) {
  for (const auto kind : kKinds) {
    const auto optimizer = make_optimizer(settings_of(kind, DecayOn::kWeights), parameters());
    set_lr(*optimizer, 0.25);
    std::vector<double> rates;
    for (const auto& group : optimizer->param_groups()) rates.push_back(group.options().get_lr());
    EXPECT_THAT(rates, ElementsAre(0.25, 0.25)) << name_of(kind);
  }
}

}  // namespace
}  // namespace lockstep
