// What a forward may do, and which parameters it may leave out: cases D5 to D10, D12 and D14 of the
// conformance list, restated from PyTorch's distributed_test.py.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <map>
#include <string>
#include <tuple>
#include <vector>

#include "replica_checks.h"
#include "tests/comm/group_factory.h"
#include "tests/support/message_of.h"
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/linear.h>
#include <torch/optim/sgd.h>

#include "lockstep/comm/process_group.h"
#include "lockstep/core/error.h"
#include "lockstep/parallel/distributed_data_parallel.h"

namespace lockstep {
namespace {

using ::testing::HasSubstr;
using Options = DistributedDataParallelOptions;
using testing::Choosing;
using testing::constant;
using testing::expect_same_gradients;
using testing::expect_same_on_all_ranks;
using testing::gradient_of;
using testing::heard;
using testing::local_pass;
using testing::make;
using testing::message_of;
using testing::one_each;
using testing::scalar_layer;
using testing::ThreeLayersImpl;
using testing::with_replicas;
using testing::with_static_graph;
using testing::with_unused;
using torch::nn::Linear;
using torch::nn::LinearOptions;

TEST(GraphShapes, SeveralForwardsBeforeOneBackward) {
  testing::run_ranks(2, [](ProcessGroup group) {
    for (const bool is_static : {false, true}) {
      Linear net = scalar_layer();
      DistributedDataParallel model(net, group, one_each().static_graph(is_static));
      for (int step = 0; step < 3; ++step) {
        net->zero_grad();
        const torch::Tensor a = model(constant({1, 1}, 1 + group.rank()));
        const torch::Tensor b = model(constant({1, 1}, 10));
        (a.sum() + 2 * b.sum()).backward();
        EXPECT_EQ(gradient_of(net), 21.5f);
      }
    }
  });
}

TEST(GraphShapes, SeveralForwardsThenSeveralBackwards) {
  with_replicas(2, scalar_layer, {}, [](Linear& net, auto& model, auto& group) {
    for (int step = 0; step < 3; ++step) {
      net->zero_grad();
      const torch::Tensor a = model(constant({1, 1}, 1 + group.rank()));
      const torch::Tensor b = model(constant({1, 1}, 10 * group.rank()));
      a.sum().backward();
      EXPECT_EQ(gradient_of(net), 1.5f);
      b.sum().backward();
      EXPECT_EQ(gradient_of(net), 6.5f);
    }
  });
}

struct TwoHeadsImpl : ThreeLayersImpl {
  std::tuple<torch::Tensor, std::map<std::string, torch::Tensor>> forward(
      const torch::Tensor& input) {
    const torch::Tensor common = first(input);
    return {second(common), {{"third", third(common)}}};
  }
};
TORCH_MODULE(TwoHeads);

TEST(GraphShapes, D8AnOutputThatIsNotInTheLossLeavesItsGradientUndefined) {
  with_replicas(2, make<TwoHeads>, with_unused(), [](TwoHeads& net, auto& model, auto& group) {
    for (int step = 0; step < 2; ++step) {
      net->zero_grad();
      const auto [second, heads] = model(constant({1, 1}, group.rank()));
      heads.at("third").sum().backward();
      EXPECT_EQ(gradient_of(net->first), 1);
      EXPECT_EQ(gradient_of(net->third), 1);
      EXPECT_FALSE(net->second->weight.grad().defined());
    }
  });
}

TEST(GraphShapes, D8TheOutputsOfARankMayDifferFromAnothers) {
  with_replicas(2, make<TwoHeads>, with_unused(), [](TwoHeads& net, auto& model, auto& group) {
    const auto [second, heads] = model(constant({1, 1}, 4));
    (group.rank() == 0 ? second : heads.at("third")).sum().backward();
    EXPECT_EQ(gradient_of(net->first), 8);
    EXPECT_EQ(gradient_of(net->second), 4) << "8 on rank 0, nothing on rank 1";
    EXPECT_EQ(gradient_of(net->third), 4);
  });
}

/// Gives its second input no gradient at all.
struct NoGradient : torch::autograd::Function<NoGradient> {
  static torch::Tensor forward(
      torch::autograd::AutogradContext*, const torch::Tensor& input, const torch::Tensor& weight) {
    return input * weight;
  }
  static torch::autograd::variable_list backward(
      torch::autograd::AutogradContext*, torch::autograd::variable_list gradients) {
    return {gradients[0], torch::Tensor()};
  }
};

TEST(GraphShapes, D8AGradientThatIsUndefinedOnAllRanksStaysSo) {
  with_replicas(2, make<Choosing>, with_unused(), [](Choosing& net, auto& model, auto&) {
    for (int step = 0; step < 2; ++step) {
      const torch::Tensor out = model(constant({1, 1}, 1), false);
      NoGradient::apply(out, net->second->weight).sum().backward();
      EXPECT_TRUE(net->first->weight.grad().defined());
      EXPECT_FALSE(net->second->weight.grad().defined());
    }
  });
}

TEST(GraphShapes, D8ATiedParameterThatIsNotUsedStaysUndefined) {
  testing::run_ranks(2, [](ProcessGroup group) {
    Choosing net;
    net->register_module("again", net->second);
    DistributedDataParallel model(net, group, with_unused());
    model(constant({1, 1}, group.rank()), false).sum().backward();
    EXPECT_EQ(gradient_of(net->first), 0.5f);
    EXPECT_FALSE(net->second->weight.grad().defined());
  });
}

TEST(GraphShapes, D14DoubleBackwardIsRefusedByName) {
  with_replicas(2, scalar_layer, {}, [](Linear&, auto& model, auto&) {
    const std::string text = message_of<std::exception>([&] {
      model(torch::ones({1, 1})).pow(2).sum().backward({}, std::nullopt, /*create_graph=*/true);
    });
    EXPECT_THAT(text, HasSubstr("backward with create_graph reached weight"));
    EXPECT_THAT(text, HasSubstr("torch::autograd::grad"));
  });
}

// The remedy of that message: torch::autograd::grad is no pass, backward on the sum is one.
TEST(GraphShapes, D14AGradientPenaltyIsAveraged) {
  with_replicas(2, make<Choosing>, with_unused(), [](Choosing& net, auto& model, auto& group) {
    for (int step = 0; step < 2; ++step) {
      net->zero_grad();
      const torch::Tensor input = constant({1, 1}, group.rank() + 1).requires_grad_();
      const torch::Tensor out = model(input, true).sum();
      const torch::Tensor slope = torch::autograd::grad(
          {out}, {input}, {}, /*retain_graph=*/true, /*create_graph=*/true)[0];
      (out + slope.pow(2).sum()).backward();
      // d/da (a b x + (a b)^2) = b x + 2 a b^2
      EXPECT_EQ(gradient_of(net->first), 3 + 16);
      EXPECT_EQ(gradient_of(net->second), 3 + 16);
    }
  });
}

struct ThrowingImpl : ThreeLayersImpl {
  torch::Tensor forward(const torch::Tensor& input, bool fails) {
    const torch::Tensor out = third(second(first(input)));
    if (fails) throw std::domain_error("forward");
    return out;
  }
};
TORCH_MODULE(Throwing);

TEST(GraphShapes, D14AnExceptionInForwardLeavesTheModelUsable) {
  with_replicas(2, make<Throwing>, {}, [](Throwing& net, auto& model, auto& group) {
    EXPECT_THROW(model(torch::ones({1, 1}), true), std::domain_error);
    model(constant({1, 1}, group.rank()), false).sum().backward();
    EXPECT_EQ(gradient_of(net->first), 2);
  });
}

TEST(GraphShapes, AnExceptionInBackwardIsToldAtTheNextForward) {
  with_replicas(2, make<Throwing>, one_each(), [](Throwing& net, auto& model, auto&) {
    const torch::Tensor out = model(torch::ones({1, 1}), false);
    net->first->weight.register_hook(
        [](const torch::Tensor&) -> torch::Tensor { throw std::domain_error("backward"); });
    EXPECT_THROW(out.sum().backward(), std::exception);
    EXPECT_THAT(message_of<std::exception>([&] {
      model(torch::ones({1, 1}), false);
    }),
        HasSubstr("an earlier backward of rank"));
  });
}

struct BranchesImpl : testing::ThreeLayersImpl {
  torch::Tensor forward(const torch::Tensor& input, bool use_first) {
    return use_first ? first(input) : second(input);
  }
};
TORCH_MODULE(Branches);

// With a bucket per parameter one rank's are full early, another's only at the end of backward: all
// the same they must travel in one order.
TEST(UnusedParameters, D6WhatSomeRankUsedIsAveragedWhatNoneUsedStaysUndefined) {
  for (const Options& options : {Options().find_unused_parameters(true), with_unused()}) {
    with_replicas(3, make<Branches>, options, [](Branches& net, auto& model, auto& group) {
      for (int step = 0; step < 4; ++step) {
        net->zero_grad();
        model(constant({1, 1}, 3), group.rank() == step % 3).sum().backward();
        EXPECT_EQ(gradient_of(net->first), 1);
        EXPECT_EQ(gradient_of(net->second), 2);
        EXPECT_FALSE(net->third->weight.grad().defined());
      }
    });
  }
}

// In the first pass rank 0 reaches every parameter and rank 1 does not: whether buckets are cut
// anew must not depend on it.
TEST(UnusedParameters, D10ARankThatUsesEverythingDoesNotRebuildAlone) {
  testing::run_ranks(2, [](ProcessGroup group) {
    torch::nn::Sequential net(Linear(1, 1), Linear(1, 1));
    DistributedDataParallel model(net, group, Options().find_unused_parameters(true));
    for (int step = 0; step < 3; ++step) {
      net->zero_grad();
      const torch::Tensor out = model(torch::ones({1, 1}));
      const torch::Tensor part = net[0]->as<Linear>()->forward(torch::ones({1, 1}));
      (group.rank() == 0 ? out : part).sum().backward();
      expect_same_gradients(*net, group);
    }
  });
}

TEST(UnusedParameters, D5ALayerUsedOnlyInTheAccumulatedPassIsAveragedToo) {
  testing::run_ranks(2, [](ProcessGroup group) {
    Branches net;
    DistributedDataParallel model(net, group, Options().find_unused_parameters(true));
    local_pass(model, constant({1, 1}, group.rank() + 1), true);
    model(constant({1, 1}, 4), false).sum().backward();
    EXPECT_EQ(gradient_of(net->first), 1.5f);
    EXPECT_EQ(gradient_of(net->second), 4);
  });
}

TEST(UnusedParameters, D7AnUnusedParameterIsAnErrorThatNamesRankParameterAndRemedy) {
  with_replicas(2, make<Branches>, {}, [](Branches&, auto& model, auto&) {
    const std::string text = message_of<std::exception>([&] {
      model(torch::ones({1, 1}), true).sum().backward();
    });
    EXPECT_THAT(text, HasSubstr("gave no gradient to second.weight, third.weight"));
    EXPECT_THAT(text, HasSubstr("find_unused_parameters(true)"));
  });
}

// Only rank 1 leaves a layer out: rank 0 waits for it and must learn of it.
TEST(UnusedParameters, D7TheOtherRanksLearnTheReason) {
  testing::run_ranks(2, [](ProcessGroup group) {
    torch::nn::Sequential net(Linear(1, 1), Linear(1, 1));
    DistributedDataParallel model(net, group, one_each());
    const std::string text = message_of<std::exception>([&] {
      const torch::Tensor out = model(torch::ones({1, 1}));
      (group.rank() == 0 ? out : net[1]->as<Linear>()->forward(torch::ones({1, 1})))
          .sum()
          .backward();
    });
    EXPECT_THAT(text, HasSubstr(heard("backward on rank 1 gave no gradient to", 1, group)));
    EXPECT_THAT(text, HasSubstr(heard("0.weight", 1, group)));
  });
}

struct OwnHeadImpl : torch::nn::Module {
  explicit OwnHeadImpl(std::int64_t width) {
    fc1 = register_module("fc1", Linear(LinearOptions(1, 1).bias(false)));
    fc2 = register_module("fc2", Linear(LinearOptions(1, width).bias(false)));
    norm = register_module("norm", torch::nn::BatchNorm1d(1));
    const torch::NoGradGuard no_grad;
    for (auto& parameter : parameters()) parameter.fill_(1);
  }
  torch::Tensor forward(const torch::Tensor& input) { return fc2(fc1(input)); }
  Linear fc1{nullptr}, fc2{nullptr};
  torch::nn::BatchNorm1d norm{nullptr};
};
TORCH_MODULE(OwnHead);

TEST(Ignored, D12EachRankKeepsWhatIsIgnored) {
  testing::run_ranks(2, [](ProcessGroup group) {
    OwnHead net(group.rank() + 1);
    net->norm->running_mean.fill_(group.rank());
    DistributedDataParallel model(net, group, Options().ignored({"fc2.weight", "norm.*"}));
    EXPECT_EQ(net->norm->running_mean.item<float>(), static_cast<float>(group.rank()));
    torch::optim::SGD optimizer({net->fc1->weight}, 0.01);
    for (int step = 0; step < 6; ++step) {
      net->zero_grad();
      model(constant({1, 1}, group.rank() + 1)).sum().backward();
      const float first = net->fc1->weight.item<float>();
      EXPECT_FLOAT_EQ(net->fc2->weight.grad().sum().item<float>(),
          first * static_cast<float>((group.rank() + 1) * (group.rank() + 1)))
          << "its own, not the average";
      EXPECT_EQ(net->fc1->weight.grad().item<float>(), (1 * 1 + 2 * 2) / 2.0f);
      optimizer.step();
    }
    expect_same_on_all_ranks(net->fc1->weight, group);
  });
}

TEST(Ignored, D12APatternThatFitsNothingIsAnError) {
  testing::run_ranks(2, [](ProcessGroup group) {
    OwnHead net(1);
    EXPECT_THAT(message_of<std::exception>(
                    [&] { DistributedDataParallel(net, group, Options().ignored({"fc3.*"})); }),
        HasSubstr("to be ignored is fc3.*, but no parameter or buffer has such a name"));
  });
}

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
  with_replicas(2, make<Checkpointed>, one_each(), [](Checkpointed& net, auto& model, auto& group) {
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
  with_replicas(2, make<SharedCheckpoint>, with_unused(), [](auto&, auto& model, auto&) {
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
    DistributedDataParallel model(net, group, with_static_graph());
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

TEST(StaticGraph, D9AStaticGraphThatUsesMoreOrLessThanBeforeIsAnError) {
  for (const bool is_deeper : {false, true}) {
    testing::run_ranks(2, [&](ProcessGroup group) {
      Choosing net;
      DistributedDataParallel model(net, group, with_static_graph());
      model(torch::ones({1, 1}), !is_deeper).sum().backward();
      EXPECT_THAT(message_of<std::exception>([&] {
        model(torch::ones({1, 1}), is_deeper).sum().backward();
      }),
          HasSubstr(concat("the graph changed: second.weight was used ", is_deeper ? 1 : 0,
              " times by this backward")));
    });
  }
}

TEST(StaticGraph, D9WhetherAGraphIsStaticIsFoundOut) {
  for (const bool alternating : {false, true}) {
    testing::run_ranks(2, [&](ProcessGroup group) {
      Choosing net;
      DistributedDataParallel model(net, group, with_unused());
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
  with_replicas(2, make<Choosing>, with_static_graph(), [](auto&, auto& model, auto& group) {
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
