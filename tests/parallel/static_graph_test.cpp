// Checkpointed parts, shared layers, and graphs that are the same in every pass: cases D9 and D10
// of the conformance list, restated from PyTorch's distributed_test.py.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <string>
#include <vector>

#include "replica_checks.h"
#include "tests/comm/group_factory.h"
#include "tests/support/message_of.h"
#include "three_layers.h"
#include <torch/csrc/autograd/custom_function.h>
#include <torch/nn/modules/linear.h>
#include <torch/optim/sgd.h>

#include "lockstep/comm/process_group.h"
#include "lockstep/parallel/distributed_data_parallel.h"

namespace lockstep {
namespace {

using testing::Choosing;
using testing::constant;
using testing::expect_same_on_all_ranks;
using testing::gradient_of;
using ::testing::HasSubstr;
using testing::message_of;
using testing::one_each;
using testing::ThreeLayersImpl;
using torch::nn::Linear;

/// Recomputes its forward in backward, as torch.utils.checkpoint does: a backward inside backward.
struct Checkpoint : torch::autograd::Function<Checkpoint> {
  static torch::Tensor forward(
      torch::autograd::AutogradContext* context, const torch::Tensor& input, Linear layer) {
    context->save_for_backward({input});
    context->saved_data["layer"] = reinterpret_cast<std::int64_t>(layer.get());
    return layer(input);
  }
  static torch::autograd::variable_list backward(
      torch::autograd::AutogradContext* context, torch::autograd::variable_list gradients) {
    auto* layer = reinterpret_cast<torch::nn::LinearImpl*>(context->saved_data["layer"].toInt());
    const torch::AutoGradMode with_graph(true);
    const torch::Tensor input = context->get_saved_variables()[0].detach().requires_grad_();
    layer->forward(input).backward(gradients[0]);
    return {input.grad(), torch::Tensor()};
  }
};

struct CheckpointedImpl : ThreeLayersImpl {
  // The last layers are checkpointed: the first gradient comes from a backward inside backward.
  torch::Tensor forward(const torch::Tensor& input) {
    return Checkpoint::apply(Checkpoint::apply(first(input), second), third);
  }
};
TORCH_MODULE(Checkpointed);

TEST(StaticGraph, CheckpointedPartsAreAveraged) {
  testing::run_ranks(2, [](ProcessGroup group) {
    Checkpointed net;
    DistributedDataParallel model(net, group, one_each());
    for (int step = 0; step < 3; ++step) {
      net->zero_grad();
      model(constant({1, 1}, group.rank() + 1)).sum().backward();
      for (const auto& parameter : net->parameters()) EXPECT_EQ(parameter.grad().item<float>(), 6);
    }
  });
}

struct SharedCheckpointImpl : ThreeLayersImpl {
  torch::Tensor forward(const torch::Tensor& input) {
    return Checkpoint::apply(Checkpoint::apply(first(input), second), second);
  }
};
TORCH_MODULE(SharedCheckpoint);

TEST(StaticGraph, ALayerOfTwoCheckpointedPartsIsAnErrorThatNamesTheRemedy) {
  testing::run_ranks(2, [](ProcessGroup group) {
    SharedCheckpoint net;
    DistributedDataParallel model(net, group, one_each().find_unused_parameters(true));
    const std::string text = message_of<std::exception>([&] {
      model(torch::ones({1, 1})).sum().backward();
    });
    EXPECT_THAT(text, HasSubstr("second.weight came twice in one backward"));
    EXPECT_THAT(text, HasSubstr("static_graph(true)"));
  });
}

TEST(StaticGraph, D9ALayerOfTwoCheckpointedPartsIsAveragedIfTheGraphIsStatic) {
  testing::run_ranks(2, [](ProcessGroup group) {
    SharedCheckpoint net;
    DistributedDataParallel model(net, group, one_each().static_graph(true));
    for (int step = 0; step < 4; ++step) {
      net->zero_grad();
      model(constant({1, 1}, group.rank() + 1)).sum().backward();
      EXPECT_EQ(gradient_of(net->first), 6);
      EXPECT_EQ(gradient_of(net->second), 12) << "both uses add up";
      EXPECT_FALSE(net->third->weight.grad().defined());
    }
    EXPECT_TRUE(model.report().graph_is_static);
    EXPECT_TRUE(model.report().rebuilt);
  });
}

TEST(StaticGraph, D9AStaticGraphThatUsesMoreThanBeforeIsAnError) {
  testing::run_ranks(2, [](ProcessGroup group) {
    Choosing net;
    DistributedDataParallel model(net, group, one_each().static_graph(true));
    model(torch::ones({1, 1}), false).sum().backward();
    const std::string text = message_of<std::exception>([&] {
      model(torch::ones({1, 1}), true).sum().backward();
    });
    EXPECT_THAT(
        text, HasSubstr("the graph changed: second.weight was used 1 times by this backward"));
  });
}

TEST(StaticGraph, D9AStaticGraphThatUsesLessThanBeforeIsAnError) {
  testing::run_ranks(2, [](ProcessGroup group) {
    Choosing net;
    DistributedDataParallel model(net, group, one_each().static_graph(true));
    model(torch::ones({1, 1}), true).sum().backward();
    const std::string text = message_of<std::exception>([&] {
      model(torch::ones({1, 1}), false).sum().backward();
    });
    EXPECT_THAT(
        text, HasSubstr("the graph changed: second.weight was used 0 times by this backward"));
  });
}

TEST(StaticGraph, D9WhetherAGraphIsStaticIsFoundOut) {
  for (const bool alternating : {false, true}) {
    testing::run_ranks(2, [&](ProcessGroup group) {
      Choosing net;
      DistributedDataParallel model(net, group, one_each().find_unused_parameters(true));
      EXPECT_FALSE(model.report().graph_is_static);
      for (int step = 0; step < 6; ++step)
        model(torch::ones({1, 1}), alternating && step % 2 == 1).sum().backward();
      EXPECT_EQ(model.report().graph_is_static, !alternating);
    });
  }
}

TEST(StaticGraph, D10SearchingAndStaticEndEqualWithAnotherGraphPerRank) {
  testing::run_ranks(2, [](ProcessGroup group) {
    std::vector<std::vector<float>> ends;
    for (const bool is_static : {false, true}) {
      Choosing net;
      DistributedDataParallel model(
          net, group, one_each().find_unused_parameters(!is_static).static_graph(is_static));
      torch::optim::SGD optimizer(net->parameters(), 0.01);
      for (int step = 0; step < 10; ++step) {
        optimizer.zero_grad();
        model(constant({1, 1}, 1 + step % 3), group.rank() == 0).sum().backward();
        EXPECT_FALSE(net->third->weight.grad().defined());
        optimizer.step();
      }
      EXPECT_EQ(model.report().rebuilt, is_static);
      ends.push_back({net->first->weight.item<float>(), net->second->weight.item<float>()});
      expect_same_on_all_ranks(net->first->weight, group);
      expect_same_on_all_ranks(net->second->weight, group);
    }
    EXPECT_EQ(ends[0], ends[1]);
    EXPECT_NE(ends[0][1], 2) << "nothing was trained";
  });
}

TEST(StaticGraph, D10BucketsOfAStaticGraphFollowRankZerosOrder) {
  testing::run_ranks(2, [](ProcessGroup group) {
    Choosing net;
    DistributedDataParallel model(net, group, one_each().static_graph(true));
    for (int step = 0; step < 2; ++step)
      model(torch::ones({1, 1}), group.rank() == 0).sum().backward();
    // Parameters: 0 first, 1 second, 2 third; rank 0's gradients come from second, then first.
    std::vector<std::size_t> order;
    for (const auto& bucket : model.reducer().buckets()) order.push_back(bucket.parameters[0]);
    EXPECT_THAT(order, ::testing::ElementsAre(1, 0, 2));
  });
}

}  // namespace
}  // namespace lockstep
