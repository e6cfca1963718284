// Modules that change after they were wrapped: what the wrapper does not average, broadcast or have
// memory for is refused before a forward, with its name.

#include <functional>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <string>

#include "replica_checks.h"
#include "tests/comm/group_factory.h"
#include "tests/support/message_of.h"
#include "tests/support/places.h"
#include "three_layers.h"
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/linear.h>

#include "lockstep/comm/process_group.h"
#include "lockstep/core/error.h"
#include "lockstep/parallel/distributed_data_parallel.h"

namespace lockstep {
namespace {

using ::testing::HasSubstr;
using torch::nn::Linear;
using Options = DistributedDataParallelOptions;
using testing::constant;
using testing::message_of;
using testing::scalar_layer;

/// Layers and a buffer that may be exchanged.
struct ChangingImpl : torch::nn::Module {
  ChangingImpl() {
    first = register_module("first", Linear(2, 2));
    second = register_module("second", Linear(2, 2));
    register_buffer("seen", torch::zeros({1}));
    second->weight.set_requires_grad(false);
  }
  torch::Tensor forward(const torch::Tensor& input) {
    torch::Tensor output = second(first(input.to(first->weight.scalar_type())));
    if (third) output = third(output);
    return output;
  }
  Linear first{nullptr}, second{nullptr}, third{nullptr};
};
TORCH_MODULE(Changing);

using Change = std::function<void(ChangingImpl&)>;

// What the forward after a change says, on every rank.
void expect_refused(const Change& change, const std::string& what, const std::string& rest = "") {
  testing::run_ranks(2, [&](ProcessGroup group) {
    Changing net;
    DistributedDataParallel model(net, group);
    model(torch::ones({1, 2})).sum().backward();
    change(*net);
    const std::string text = message_of<Error>([&] { model(torch::ones({1, 2})); });
    EXPECT_THAT(text,
        HasSubstr(
            "DistributedDataParallel: the module is not what it was when it was wrapped: " + what));
    EXPECT_THAT(text, HasSubstr(rest));
    EXPECT_THAT(text, HasSubstr("; make such changes before, or wrap it again"));
  });
}

TEST(ChangedModules, AParameterThatWasUnfrozenIsNamed) {
  expect_refused([](ChangingImpl& net) { net.second->weight.set_requires_grad(true); },
      "second.weight requires a gradient and did not");
}

TEST(ChangedModules, ALayerThatWasAddedIsNamed) {
  expect_refused(
      [](ChangingImpl& net) {
        net.third = net.register_module("third", Linear(2, 2));
        testing::bring_here(net);
      },
      "third.weight was added");
}

TEST(ChangedModules, ALayerThatWasRemovedIsNamed) {
  expect_refused(
      [](ChangingImpl& net) { net.unregister_module("second"); }, "second.weight was removed");
}

TEST(ChangedModules, AParameterThatWasReplacedIsNamed) {
  expect_refused(
      [](ChangingImpl& net) {
        net.first = net.replace_module("first", Linear(2, 2));
        testing::bring_here(net);
      },
      "first.weight was replaced by another tensor");
}

TEST(ChangedModules, ABufferThatWasAddedIsNamed) {
  expect_refused(
      [](ChangingImpl& net) { net.register_buffer("more", torch::zeros({1})); }, "more was added");
}

TEST(ChangedModules, AnotherTypeIsNamed) {
  expect_refused([](ChangingImpl& net) { net.to(torch::kBFloat16); },
      "first.weight was Float [2, 2] on ", " and is BFloat16 [2, 2] on ");
}

TEST(ChangedModules, AnotherShapeIsNamed) {
  expect_refused(
      [](ChangingImpl& net) {
        net.first->weight.set_data(testing::here(torch::ones({2, 3})));
      },
      "first.weight was Float [2, 2] on ", " and is Float [2, 3] on ");
}

// The other rank would wait.
TEST(ChangedModules, TheOtherRanksLearnOfAChangeOnOne) {
  testing::run_ranks(2, [](ProcessGroup group) {
    Changing net;
    DistributedDataParallel model(net, group);
    if (group.rank() == 1) net->second->weight.set_requires_grad(true);
    EXPECT_THAT(message_of<Error>([&] {
      model(torch::ones({1, 2})).sum().backward();
    }),
        HasSubstr(group.rank() == 1 ? "second.weight requires a gradient"
                                    : testing::as_heard("second.weight requires a gradient")));
  });
}

TEST(ChangedModules, WhatIsIgnoredMayChange) {
  testing::run_ranks(2, [](ProcessGroup group) {
    Changing net;
    DistributedDataParallel model(
        net, group, Options().ignored({"second.*"}).broadcast_buffers(false));
    net->second->weight.set_requires_grad(true);
    net->register_buffer("more", torch::zeros({1}));
    model(torch::ones({1, 2})).sum().backward();
    testing::expect_same_on_all_ranks(net->first->weight.grad(), group);
  });
}

TEST(ChangedModules, MayBeEvaluated) {
  testing::run_ranks(2, [](ProcessGroup group) {
    Changing net;
    DistributedDataParallel model(net, group);
    net->second->weight.set_requires_grad(true);
    const torch::NoGradGuard no_grad;
    model(torch::ones({1, 2}));
  });
}

TEST(ChangedModules, WhatIsFrozenLaterMayBeLeftOut) {
  testing::run_ranks(2, [](ProcessGroup group) {
    Linear net(2, 2);
    DistributedDataParallel model(net, group, Options().find_unused_parameters(true));
    net->bias.set_requires_grad(false);
    model(constant({1, 2}, group.rank())).sum().backward();
    EXPECT_FALSE(net->bias.grad().defined());
    testing::expect_same_on_all_ranks(net->weight.grad(), group);
  });
}

// Gradients are averaged in the order of memory.
TEST(ChangedModules, AnotherOrderOfMemoryOnOneRankIsRefusedAtConstruction) {
  testing::run_ranks(2, [](ProcessGroup group) {
    torch::nn::Conv2d net(torch::nn::Conv2dOptions(2, 2, 2));
    if (group.rank() == 1)
      net->weight.set_data(net->weight.detach().contiguous(at::MemoryFormat::ChannelsLast));
    EXPECT_THAT(
        message_of<InvalidArgument>([&] { const DistributedDataParallel model(net, group); }),
        HasSubstr("number 0 is weight Float [2, 2, 2, 2] on rank 0 (2 in all) and weight (strides "
                  "[8, 1, 4, 2]) Float [2, 2, 2, 2] on rank 1"));
  });
}

TEST(ChangedModules, AnotherOrderOfMemoryLaterIsAveragedAlike) {
  testing::run_ranks(2, [](ProcessGroup group) {
    torch::manual_seed(3);
    torch::nn::Conv2d net(torch::nn::Conv2dOptions(2, 2, 2));
    DistributedDataParallel model(net, group);
    if (group.rank() == 1)
      net->weight.set_data(net->weight.detach().contiguous(at::MemoryFormat::ChannelsLast));
    for (int step = 0; step < 3; ++step) {
      net->zero_grad();
      const auto input = testing::here(torch::arange(16, torch::kFloat).view({1, 2, 2, 4}));
      model(input * (1 + group.rank())).sum().backward();
      testing::expect_same_on_all_ranks(net->weight.grad().contiguous(), group);
    }
  });
}

/// Multiplies by a buffer, which its graph saves, and normalises.
struct BufferedImpl : torch::nn::Module {
  BufferedImpl() {
    layer = register_module("layer", Linear(2, 2));
    norm = register_module("norm", torch::nn::BatchNorm1d(2));
    factor = register_buffer("factor", torch::full({2}, 2));
  }
  torch::Tensor forward(const torch::Tensor& input) { return norm(layer(input) * factor); }
  Linear layer{nullptr};
  torch::nn::BatchNorm1d norm{nullptr};
  torch::Tensor factor;
};
TORCH_MODULE(Buffered);

// A siamese net, or the discriminator of a GAN.
TEST(Buffers, FollowBetweenTwoForwardsOfOneBackward) {
  testing::run_ranks(2, [](ProcessGroup group) {
    Buffered net;
    DistributedDataParallel model(net, group);
    for (int step = 0; step < 2; ++step) {
      const auto batch = [&](float start) {
        return testing::here((torch::arange(8, torch::kFloat) + start).sin().view({4, 2}));
      };
      const auto mine = static_cast<float>(group.rank());
      const torch::Tensor real = model(batch(mine)), other = model(batch(mine + 3));
      (real.square().sum() + (real * other).sum()).backward();
      for (const auto& parameter : net->parameters())
        testing::expect_same_on_all_ranks(parameter.grad(), group);
    }
  });
}

}  // namespace
}  // namespace lockstep
