#include "lockstep/snapshot/optimizer_state.h"

#include <functional>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <memory>
#include <string>

#include "tests/snapshot/snapshot_fixtures.h"
#include <torch/optim/adagrad.h>
#include <torch/optim/adam.h>
#include <torch/optim/adamw.h>
#include <torch/optim/lbfgs.h>
#include <torch/optim/rmsprop.h>
#include <torch/optim/sgd.h>

#include "lockstep/core/error.h"
#include "lockstep/nn/fused_optimizers.h"
#include "lockstep/snapshot/restore_tensors.h"

namespace lockstep {
namespace {

using testing::copy_of;
using testing::expect_same_bits;
using ::testing::HasSubstr;
using testing::SmallNet;
using testing::train_steps;
using ::testing::UnorderedElementsAre;
using Tensors = std::vector<torch::Tensor>;
using torch::optim::Optimizer;

struct Kind {
  std::string name;
  std::function<std::unique_ptr<Optimizer>(const Tensors&)> make;
  int values;  // of each parameter
};

template <typename OptimizerType, typename Options>
Kind kind(std::string name, const Options& options, int values) {
  const auto make = [options](const Tensors& parameters) -> std::unique_ptr<Optimizer> {
    return std::make_unique<OptimizerType>(parameters, options);
  };
  return {std::move(name), make, values};
}

const std::vector<Kind>& kinds() {
  using namespace torch::optim;
  static const std::vector<Kind> kAll{kind<SGD>("sgd", SGDOptions(0.1), 0),
      kind<SGD>("sgd_momentum", SGDOptions(0.1).momentum(0.9).dampening(0.1).weight_decay(0.01), 1),
      kind<nn::SGD>("fused_nesterov", SGDOptions(0.1).momentum(0.9).nesterov(true), 1),
      kind<Adam>("adam", AdamOptions(0.01), 3),
      kind<Adam>("adam_amsgrad", AdamOptions(0.01).amsgrad(true).betas({0.8, 0.99}), 4),
      kind<nn::Adam>("fused_adam", AdamOptions(0.01).eps(1e-7).weight_decay(0.1), 3),
      kind<AdamW>("adamw", AdamWOptions(0.01).weight_decay(0.2), 3),
      kind<nn::AdamW>("fused_adamw_amsgrad", AdamWOptions(0.01).amsgrad(true), 4),
      kind<Adagrad>("adagrad", AdagradOptions(0.1).lr_decay(0.1), 2),
      kind<RMSprop>("rmsprop", RMSpropOptions(0.01), 2),
      kind<RMSprop>("rmsprop_all", RMSpropOptions(0.01).momentum(0.5).centered(true), 4)};
  return kAll;
}

class EveryOptimizer : public ::testing::TestWithParam<Kind> {};

OptimizerState copy_of(const OptimizerState& state) {
  return {copy_of(state.tensors), state.options};
}

TEST_P(EveryOptimizer, GoesOnBitForBit) {
  SmallNet whole, part, fresh;
  const auto at_once = GetParam().make(whole->parameters());
  testing::seed_all(1);
  train_steps(whole, *at_once, 0, 6);

  const auto before = GetParam().make(part->parameters());
  testing::seed_all(1);
  train_steps(part, *before, 0, 3);
  const auto weights = copy_of(nn::named_state(*part));
  const auto saved = copy_of(optimizer_state(*before, nn::named_state(*part)));
  EXPECT_EQ(saved.tensors.size(), 6U * static_cast<std::size_t>(GetParam().values));
  const std::vector<torch::Device> devices{part->fc->weight.device()};
  const auto random = random_state(devices);

  const auto after = GetParam().make(fresh->parameters());
  train_steps(fresh, *after, 7, 9);  // another state, to be replaced
  after->param_groups()[0].options().set_lr(123);
  restore_tensors(nn::named_state(*fresh), weights, "test");
  restore_optimizer(*after, nn::named_state(*fresh), saved);
  (void)restore_random_state(random, devices);
  EXPECT_EQ(
      after->param_groups()[0].options().get_lr(), before->param_groups()[0].options().get_lr());
  train_steps(fresh, *after, 3, 6);
  expect_same_bits(nn::named_state(*fresh), nn::named_state(*whole));
  const auto last = optimizer_state(*after, nn::named_state(*fresh));
  const auto expected = optimizer_state(*at_once, nn::named_state(*whole));
  expect_same_bits(last.tensors, expected.tensors);
  EXPECT_EQ(last.options, expected.options);
}

INSTANTIATE_TEST_SUITE_P(Kinds, EveryOptimizer, ::testing::ValuesIn(kinds()),
    [](const auto& of) { return of.param.name; });

struct Adam : testing::SmallTraining {
  nn::NamedTensors named = nn::named_state(*net);
};

TEST(OptimizerState, NamesValuesByTheParameters) {
  Adam adam;
  train_steps(adam.net, adam.optimizer, 0, 2);
  const auto state = optimizer_state(adam.optimizer, adam.named);
  EXPECT_THAT(state.tensors.keys(), ::testing::Contains("conv.weight/exp_avg_sq"));
  expect_same_bits(state.tensors["fc.bias/step"], torch::tensor(2, torch::kLong));
  EXPECT_THAT(state.options, HasSubstr(R"("lr":0.01)"));
  EXPECT_THAT(state.options, HasSubstr(R"("kind":"Adam")"));
}

TEST(OptimizerState, RestoresInTheParametersMemoryFormat) {
  Adam from, to;
  train_steps(from.net, from.optimizer, 0, 2);
  restore_optimizer(to.optimizer, to.named, copy_of(optimizer_state(from.optimizer, from.named)));
  const auto restored = optimizer_state(to.optimizer, to.named);
  EXPECT_EQ(restored.tensors["conv.weight/exp_avg"].strides(), to.named["conv.weight"].strides());
}

TEST(OptimizerState, AParameterWithoutStateHasNoneAfterwards) {
  Adam from, to;
  from.net->fc->weight.set_requires_grad(false);
  train_steps(from.net, from.optimizer, 0, 2);
  train_steps(to.net, to.optimizer, 0, 1);
  const auto saved = copy_of(optimizer_state(from.optimizer, from.named));
  EXPECT_FALSE(saved.tensors.contains("fc.weight/exp_avg"));
  restore_optimizer(to.optimizer, to.named, saved);
  EXPECT_EQ(to.optimizer.state().count(to.net->fc->weight.unsafeGetTensorImpl()), 0U);
  EXPECT_EQ(to.optimizer.state().size(), 5U);
}

TEST(OptimizerState, KeepsTheOptionsOfEachGroup) {
  const auto make = [](SmallNet& net) {
    using torch::optim::AdamWOptions;
    std::vector<torch::optim::OptimizerParamGroup> groups;
    groups.emplace_back(net->conv->parameters(), std::make_unique<AdamWOptions>(0.5));
    groups.emplace_back(net->fc->parameters(), std::make_unique<AdamWOptions>(0.25));
    auto optimizer = std::make_unique<torch::optim::AdamW>(groups, AdamWOptions(0.01));
    return optimizer;
  };
  SmallNet from, to;
  const auto saving = make(from), loading = make(to);
  static_cast<torch::optim::AdamWOptions&>(saving->param_groups()[1].options()).weight_decay(0);
  saving->param_groups()[0].options().set_lr(0.125);
  restore_optimizer(
      *loading, nn::named_state(*to), optimizer_state(*saving, nn::named_state(*from)));
  const auto& groups = loading->param_groups();
  EXPECT_EQ(groups[0].options().get_lr(), 0.125);
  EXPECT_EQ(groups[1].options().get_lr(), 0.25);
  EXPECT_EQ(static_cast<const torch::optim::AdamWOptions&>(groups[1].options()).weight_decay(), 0);
}

// Gives what restoring says; the optimizer must be as it was.
std::string refusal(Adam& adam, const OptimizerState& state, Others others = Others::kRefused) {
  const auto before = copy_of(optimizer_state(adam.optimizer, adam.named));
  std::string text;
  try {
    restore_optimizer(adam.optimizer, adam.named, state, others);
  } catch (const DataError& error) {
    text = error.what();
  }
  const auto after = optimizer_state(adam.optimizer, adam.named);
  expect_same_bits(after.tensors, before.tensors);
  EXPECT_EQ(after.options, before.options);
  return text;
}

TEST(OptimizerState, ListsAllThatDoesNotFitAndChangesNothing) {
  Adam adam;
  train_steps(adam.net, adam.optimizer, 0, 2);
  auto state = copy_of(optimizer_state(adam.optimizer, adam.named));
  state.tensors.erase("fc.bias/exp_avg");
  state.tensors.erase("norm.bias/step");
  state.tensors.insert("other.weight/exp_avg", torch::zeros({2}));
  state.tensors.insert("fc.weight/momentum_buffer", torch::zeros({2, 27}));
  state.tensors["conv.bias/exp_avg"] = torch::zeros({4});
  state.tensors["conv.weight/exp_avg_sq"] = torch::zeros({3, 2, 2, 2}, torch::kDouble);
  adam.optimizer.param_groups()[0].options().set_lr(0.5);
  const std::string text = refusal(adam, state);
  for (const char* part : {"missing: fc.bias/exp_avg\n", "missing: norm.bias/step\n",
           "unexpected: other.weight/exp_avg\n", "unexpected: fc.weight/momentum_buffer\n",
           "conv.bias/exp_avg: float32 (4) was saved, float32 (3) is needed\n",
           "conv.weight/exp_avg_sq: float64 (3, 2, 2, 2) was saved, float32 (3, 2, 2, 2) is "
           "needed\n"}) {
    EXPECT_THAT(text, HasSubstr(part));
  }
}

TEST(OptimizerState, SkipsOtherStagesOnlyIfAsked) {
  Adam adam;
  train_steps(adam.net, adam.optimizer, 0, 2);
  auto state = copy_of(optimizer_state(adam.optimizer, adam.named));
  state.tensors.insert("other.weight/exp_avg", torch::zeros({2}));
  EXPECT_THAT(refusal(adam, state), HasSubstr("unexpected: other.weight/exp_avg"));
  EXPECT_EQ(refusal(adam, state, Others::kSkipped), "");
  state.tensors.insert("other.weight/what", torch::zeros({2}));
  EXPECT_THAT(refusal(adam, state, Others::kSkipped), HasSubstr("unexpected: other.weight/what"));
}

TEST(OptimizerState, AmsgradNeedsItsLargestValues) {
  SmallNet from;
  torch::optim::Adam plain(from->parameters(), torch::optim::AdamOptions(0.01));
  train_steps(from, plain, 0, 1);
  static_cast<torch::optim::AdamOptions&>(plain.param_groups()[0].options()).amsgrad(true);
  Adam to;
  EXPECT_THAT(refusal(to, optimizer_state(plain, nn::named_state(*from))),
      HasSubstr("missing: fc.bias/max_exp_avg_sq"));
}

TEST(OptimizerState, AdagradMissesAStateThatItMadeAtOnce) {
  SmallNet from, to;
  torch::optim::Adagrad saving(from->parameters()), loading(to->parameters());
  auto state = optimizer_state(saving, nn::named_state(*from));
  state.tensors.erase("fc.bias/sum");
  state.tensors.erase("fc.bias/step");
  EXPECT_THROW(restore_optimizer(loading, nn::named_state(*to), state), DataError);
}

TEST(OptimizerState, RefusesAnotherKindAndOptionsThatAreNotWhole) {
  Adam adam;
  SmallNet net;
  torch::optim::SGD sgd(net->parameters(), torch::optim::SGDOptions(0.1));
  EXPECT_THAT(refusal(adam, optimizer_state(sgd, nn::named_state(*net))),
      HasSubstr("the state of SGD was saved, this is Adam"));
  auto state = optimizer_state(adam.optimizer, adam.named);
  const std::string whole = state.options;
  for (const auto& [from, to] : std::vector<std::pair<std::string, std::string>>{
           {R"("lr":0.01)", R"("lr":"0.01")"}, {R"("lr":0.01)", R"("lr":null)"},
           {R"("lr":0.01,)", ""}, {R"("lr":0.01)", R"("lr":0.01,"nesterov":true)"},
           {R"("amsgrad":false)", R"("amsgrad":0)"}, {R"("betas":[0.9,0.999])", R"("betas":[0.9])"},
           {R"("kind")", R"("kinds")"}, {R"(,"fc.bias")", ""}, {R"("fc.bias")", "7"}, {"}", ""}}) {
    state.options = whole;
    const auto place = state.options.find(from);
    ASSERT_NE(place, std::string::npos) << from << " in " << whole;
    state.options.replace(place, from.size(), to);
    EXPECT_NE(refusal(adam, state), "") << from << " -> " << to;
  }
}

TEST(OptimizerState, RefusesWhatItDoesNotKnow) {
  SmallNet net, other;
  torch::optim::LBFGS lbfgs(net->parameters());
  EXPECT_THROW((void)optimizer_state(lbfgs, nn::named_state(*net)), InvalidArgument);
  torch::optim::SGD sgd(net->parameters(), torch::optim::SGDOptions(0.1));
  EXPECT_THROW((void)optimizer_state(sgd, nn::named_state(*other)), InvalidArgument);
}

// LibTorch's parameters() lists a tied weight under each of its names.
TEST(OptimizerState, OfATiedParameterIsSavedOnce) {
  torch::nn::Module net;
  const auto weight = net.register_parameter("a", torch::ones({2, 3}));
  net.register_parameter("b", weight);
  const auto named = nn::named_state(net);
  torch::optim::Adam optimizer(net.parameters(), torch::optim::AdamOptions(0.1));
  weight.mutable_grad() = torch::ones({2, 3});
  optimizer.step();
  const auto state = optimizer_state(optimizer, named);
  EXPECT_THAT(state.tensors.keys(), UnorderedElementsAre("a/exp_avg", "a/exp_avg_sq", "a/step"));
  torch::optim::Adam other(net.parameters(), torch::optim::AdamOptions(0.1));
  restore_optimizer(other, named, state);
  expect_same_bits(optimizer_state(other, named).tensors, state.tensors);
}

// As with FSDP, where a rank may have a part of no parameter: its learning rate must not differ.
TEST(OptimizerState, AGroupWithoutParametersTakesTheOptionsInItsPlace) {
  using torch::optim::AdamOptions;
  const auto group_of = [](std::vector<torch::Tensor> parameters, double rate) {
    return torch::optim::OptimizerParamGroup(
        std::move(parameters), std::make_unique<AdamOptions>(rate));
  };
  SmallNet net;
  const auto named = nn::named_state(*net);
  const auto made = [&](std::vector<torch::Tensor> second, double rate) {
    std::vector groups{group_of(net->conv->parameters(), rate), group_of(std::move(second), rate)};
    return torch::optim::Adam(groups, AdamOptions(rate));
  };
  auto saved = made(net->fc->parameters(), 0.25), empty = made({}, 0.5);
  saved.param_groups()[1].options().set_lr(0.125);
  const auto state = optimizer_state(saved, named);
  restore_optimizer(empty, named, joined({state, {.options = state.options}}));
  EXPECT_EQ(empty.param_groups()[0].options().get_lr(), 0.25);
  EXPECT_EQ(empty.param_groups()[1].options().get_lr(), 0.125);
}

TEST(OptimizerState, JoinsPartsAndRefusesTwoOfAName) {
  Adam adam;
  train_steps(adam.net, adam.optimizer, 0, 1);
  const auto all = optimizer_state(adam.optimizer, adam.named);
  OptimizerState first, second;
  first.options = second.options = all.options;
  for (const auto& item : all.tensors)
    (first.tensors.size() < 5 ? first : second).tensors.insert(item.key(), item.value());
  const auto both = joined({first, second});
  expect_same_bits(both.tensors, all.tensors);
  Adam to;
  restore_optimizer(to.optimizer, to.named, both);
  EXPECT_THROW((void)joined({first, first}), DataError);
  second.options.replace(second.options.find("0.01"), 4, "0.02");
  Adam other;
  EXPECT_THROW(restore_optimizer(other.optimizer, other.named, joined({first, second})), DataError);
}

}  // namespace
}  // namespace lockstep
