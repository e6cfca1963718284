// Layers that are computed again in backward.

#include "lockstep/parallel/pipeline/checkpoint.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <string>
#include <utility>
#include <vector>

#include "tests/support/message_of.h"
#include "tests/support/places.h"
#include <ATen/CPUGeneratorImpl.h>
#include <ATen/autocast_mode.h>
#include <c10/util/Exception.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/container/functional.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/dropout.h>
#include <torch/nn/modules/linear.h>

#include "lockstep/comm/process_group.h"
#include "lockstep/core/error.h"
#include "lockstep/nn/autocast.h"
#include "lockstep/parallel/operators/operator_rules.h"
#include "lockstep/parallel/pipeline/layers.h"
#include "lockstep/parallel/place/memory_meter.h"
#include "lockstep/parallel/sync_batch_norm/sync_batch_norm.h"

namespace lockstep {
namespace {

using torch::Tensor;
using torch::nn::AnyModule;
using torch::nn::Linear;
using torch::nn::Sequential;

struct Block : torch::nn::Module {
  Block(std::int64_t inputs, std::int64_t outputs)
      : layers(register_module(
            "layers", Sequential(Linear(inputs, outputs), torch::nn::BatchNorm1d(outputs),
                          torch::nn::ReLU(torch::nn::ReLUOptions().inplace(true)),
                          torch::nn::Dropout(0.4), Linear(outputs, outputs)))) {}
  Tensor forward(Tensor input) { return layers->forward(input); }
  Sequential layers;
};

Sequential three_blocks() {
  torch::manual_seed(5);
  return Sequential(
      std::make_shared<Block>(6, 8), std::make_shared<Block>(8, 8), std::make_shared<Block>(8, 3));
}

Tensor forward(Sequential& net, Tensor value, bool again) {
  for (AnyModule& layer : *net)
    value = again ? checkpoint(layer, value) : layer.forward(std::move(value));
  return value;
}

// Returns the loss, the gradients of input and parameters, and the buffers.
std::vector<Tensor> step(bool again, bool wants_input) {
  Sequential net = three_blocks();
  torch::manual_seed(6);
  Tensor input = torch::randn({5, 6});
  input.set_requires_grad(wants_input);
  const Tensor output = forward(net, input, again);
  const Tensor loss = output.to(torch::kFloat).square().sum();
  loss.backward();
  std::vector<Tensor> all = {loss.detach(), torch::rand({1})};  // draws what comes after
  if (wants_input) all.push_back(input.grad());
  for (const Tensor& parameter : net->parameters()) all.push_back(parameter.grad());
  for (const Tensor& buffer : net->buffers()) all.push_back(buffer);
  return all;
}

void expect_equal(const std::vector<Tensor>& a, const std::vector<Tensor>& b) {
  ASSERT_EQ(a.size(), b.size());
  for (std::size_t i = 0; i < a.size(); ++i) EXPECT_TRUE(torch::equal(a[i], b[i])) << i;
}

TEST(Checkpoint, ChangesNoBit) {
  for (const bool wants_input : {false, true}) {
    if (testing::places(1).front().device.is_cpu())
      expect_equal(step(true, wants_input), step(false, wants_input));
    const RandomStream stream(make_stream_generator(1, 2, 3));
    const auto again = step(true, wants_input);
    const RandomStream same(make_stream_generator(1, 2, 3));
    expect_equal(again, step(false, wants_input));
  }
}

TEST(Checkpoint, DropsTheSameUnitsAgain) {
  const auto input = torch::ones({50, 20}).requires_grad_();
  const Tensor output = checkpoint(AnyModule(torch::nn::Dropout(0.5)), input);
  output.sum().backward();
  EXPECT_TRUE(torch::equal(input.grad(), output)) << "each is 0 or 2";
  const Tensor other = checkpoint(AnyModule(torch::nn::Dropout(0.5)), input);
  EXPECT_FALSE(torch::equal(other, output));
}

TEST(Checkpoint, HasTheAutocastOfTheFirstForward) {
  const auto in_bf16 = [](bool again) {
    const RandomStream stream(make_stream_generator(1, 2, 3));
    const nn::Autocast autocast(torch::kCPU, torch::kBFloat16);
    return step(again, true);
  };
  expect_equal(in_bf16(true), in_bf16(false));
}

// Where backward comes after autocast's scope: that drops the first forward's casts of weights, and
// the second one's must not live until the next step.
TEST(Checkpoint, ComputesInAShorterTypeWithTheWeightsOfItsStep) {
  const auto outputs = [](bool again) {
    torch::manual_seed(3);
    Sequential net(Linear(6, 8), Linear(8, 3));
    const Tensor input = torch::rand({4, 6});
    std::vector<Tensor> found;
    for (int step = 0; step < 3; ++step) {
      const Tensor output = [&] {
        const nn::Autocast autocast(torch::kCPU, torch::kBFloat16);
        return forward(net, input, again);
      }();
      found.push_back(output.detach());
      output.sum().backward();
      const torch::NoGradGuard no_gradients;
      for (Tensor& parameter : net->parameters()) parameter.sub_(parameter.grad());
    }
    return found;
  };
  const std::vector<Tensor> plain = outputs(false), again = outputs(true);
  for (std::size_t step = 0; step < plain.size(); ++step)
    EXPECT_TRUE(plain[step].equal(again[step])) << step;
}

TEST(Checkpoint, RefusesSkipConnectionsBesideTheChain) {
  const Sequential net(Stash("in"), Linear(3, 3), Pop("in"));
  EXPECT_THAT(
      testing::message_of<InvalidArgument>([&] { check_can_be_computed_again(layers_of(net)); }),
      ::testing::HasSubstr("0 passes a skip connection"));
  EXPECT_NO_THROW(check_can_be_computed_again(layers_of(three_blocks())));
}

TEST(MemoryMeterOfCheckpoint, SeesInputsOnly) {
  Sequential net(std::make_shared<Block>(64, 64));
  const Tensor input = torch::rand({256, 64});
  const auto kept = [&](bool again) {
    const MemoryMeter meter;
    const Tensor output = forward(net, input, again);
    return meter.total().live;
  };
  constexpr std::int64_t kOne = 256 * 64 * 4;
  EXPECT_LE(kept(true), kOne + 64);
  EXPECT_GE(kept(false), 3 * kOne);
}

TEST(Checkpoint, WithoutGradientsIsTheLayer) {
  Sequential net = three_blocks();
  const torch::NoGradGuard no_grad;
  EXPECT_FALSE(forward(net, torch::rand({4, 6}), true).requires_grad());
}

TEST(Checkpoint, RefusesAnInputThatWasChanged) {
  Tensor input = torch::rand({4, 6});
  const Tensor output = checkpoint(AnyModule(Linear(6, 3)), input);
  input.add_(1);
  EXPECT_THROW(output.sum().backward(), Error);
}

TEST(Checkpoint, RefusesASecondDerivative) {
  const auto input = torch::rand({4, 6}).requires_grad_();
  const Tensor output = checkpoint(AnyModule(Linear(6, 3)), input);
  EXPECT_THROW(torch::autograd::grad({output.sum()}, {input}, {}, true, /*create_graph=*/true),
      InvalidArgument);
}

TEST(Checkpoint, RefusesGradientsThatAreTakenAside) {
  const auto input = torch::rand({4, 6}).requires_grad_();
  const Tensor output = checkpoint(AnyModule(Linear(6, 3)), input);
  EXPECT_THROW(torch::autograd::grad({output.sum()}, {input}), InvalidArgument);
}

/// Counts its calls.
struct Counter : torch::nn::Module {
  Tensor forward(Tensor input) { return input * calls.add_(1); }
  Tensor calls = register_buffer("calls", torch::zeros({1}));
};

TEST(Checkpoint, RefusesALayerThatChangesABuffer) {
  const auto message = testing::message_of<InvalidArgument>([] {
    checkpoint(AnyModule(std::make_shared<Counter>()), torch::rand({4, 6}));
  });
  EXPECT_NE(message.find("buffer calls"), std::string::npos) << message;
}

TEST(Checkpoint, RefusesNormsOverRanks) {
  const SyncBatchNormScope scope{ProcessGroup()};
  const AnyModule layer(Linear(6, 3));
  EXPECT_THROW((void)checkpoint(layer, torch::rand({4, 6})), InvalidArgument);
}

}  // namespace
}  // namespace lockstep
