// What a forward may do: several outputs, several forwards before one backward, checkpointed parts,
// shared layers, another graph per pass or always the same. Cases D8 to D10 and D14 of the
// conformance list, restated from PyTorch's distributed_test.py.

#include <map>
#include <string>
#include <tuple>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/linear.h>
#include <torch/optim/sgd.h>

#include "lockstep/comm/run_ranks.h"
#include "lockstep/core/error.h"
#include "lockstep/parallel/distributed_data_parallel.h"

#include "replica_checks.h"

namespace lockstep {
namespace {

using ::testing::HasSubstr;
using torch::nn::Linear;
using torch::nn::LinearOptions;
using Options = DistributedDataParallelOptions;
using testing::constant;
using testing::error_of;
using testing::expect_same_on_all_ranks;

Linear scalar_layer() { return Linear(LinearOptions(1, 1).bias(false)); }

// Each parameter in a bucket of its own, so that the order of launching shows.
Options one_each() { return Options().first_bucket_bytes(1).bucket_bytes(1); }

float gradient_of(const Linear& layer) { return layer->weight.grad().item<float>(); }

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

struct ThreeLayersImpl : torch::nn::Module {
  ThreeLayersImpl() {
    first = register_module("first", scalar_layer());
    second = register_module("second", scalar_layer());
    third = register_module("third", scalar_layer());
    const torch::NoGradGuard no_grad;
    for (auto& parameter : parameters()) parameter.fill_(2);
  }
  Linear first{nullptr}, second{nullptr}, third{nullptr};
};

struct CheckpointedImpl : ThreeLayersImpl {
  // The last layers are checkpointed: the first gradient comes from a backward inside backward.
  torch::Tensor forward(const torch::Tensor& input) {
    return Checkpoint::apply(Checkpoint::apply(first(input), second), third);
  }
};
TORCH_MODULE(Checkpointed);

TEST(GraphShapes, CheckpointedPartsAreAveraged) {
  run_ranks(2, [](ProcessGroup group) {
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

TEST(GraphShapes, ALayerOfTwoCheckpointedPartsIsAnErrorThatNamesTheRemedy) {
  run_ranks(2, [](ProcessGroup group) {
    SharedCheckpoint net;
    DistributedDataParallel model(net, group, one_each().find_unused_parameters(true));
    const std::string text = error_of([&] { model(torch::ones({1, 1})).sum().backward(); });
    EXPECT_THAT(text, HasSubstr("second.weight came twice in one backward"));
    EXPECT_THAT(text, HasSubstr("static_graph(true)"));
  });
}

TEST(GraphShapes, D9ALayerOfTwoCheckpointedPartsIsAveragedIfTheGraphIsStatic) {
  run_ranks(2, [](ProcessGroup group) {
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

struct ChoosingImpl : ThreeLayersImpl {
  torch::Tensor forward(const torch::Tensor& input, bool deep) {
    return deep ? second(first(input)) : first(input);
  }
};
TORCH_MODULE(Choosing);

TEST(GraphShapes, D9AStaticGraphThatUsesMoreThanBeforeIsAnError) {
  run_ranks(2, [](ProcessGroup group) {
    Choosing net;
    DistributedDataParallel model(net, group, one_each().static_graph(true));
    model(torch::ones({1, 1}), false).sum().backward();
    const std::string text = error_of([&] { model(torch::ones({1, 1}), true).sum().backward(); });
    EXPECT_THAT(
        text, HasSubstr("the graph changed: second.weight was used 1 times by this backward"));
  });
}

TEST(GraphShapes, D9AStaticGraphThatUsesLessThanBeforeIsAnError) {
  run_ranks(2, [](ProcessGroup group) {
    Choosing net;
    DistributedDataParallel model(net, group, one_each().static_graph(true));
    model(torch::ones({1, 1}), true).sum().backward();
    const std::string text = error_of([&] { model(torch::ones({1, 1}), false).sum().backward(); });
    EXPECT_THAT(
        text, HasSubstr("the graph changed: second.weight was used 0 times by this backward"));
  });
}

TEST(GraphShapes, D9WhetherAGraphIsStaticIsFoundOut) {
  for (const bool alternating : {false, true}) {
    run_ranks(2, [&](ProcessGroup group) {
      Choosing net;
      DistributedDataParallel model(net, group, one_each().find_unused_parameters(true));
      EXPECT_FALSE(model.report().graph_is_static);
      for (int step = 0; step < 6; ++step)
        model(torch::ones({1, 1}), alternating && step % 2 == 1).sum().backward();
      EXPECT_EQ(model.report().graph_is_static, !alternating);
    });
  }
}

TEST(GraphShapes, D10SearchingAndStaticEndEqualWithAnotherGraphPerRank) {
  run_ranks(2, [](ProcessGroup group) {
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

TEST(GraphShapes, D10BucketsOfAStaticGraphFollowRankZerosOrder) {
  run_ranks(2, [](ProcessGroup group) {
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

TEST(GraphShapes, SeveralForwardsBeforeOneBackward) {
  run_ranks(2, [](ProcessGroup group) {
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
  run_ranks(2, [](ProcessGroup group) {
    Linear net = scalar_layer();
    DistributedDataParallel model(net, group);
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
  run_ranks(2, [](ProcessGroup group) {
    TwoHeads net;
    DistributedDataParallel model(net, group, one_each().find_unused_parameters(true));
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
  run_ranks(2, [](ProcessGroup group) {
    TwoHeads net;
    DistributedDataParallel model(net, group, one_each().find_unused_parameters(true));
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
  run_ranks(2, [](ProcessGroup group) {
    Choosing net;
    DistributedDataParallel model(net, group, one_each().find_unused_parameters(true));
    for (int step = 0; step < 2; ++step) {
      const torch::Tensor out = model(constant({1, 1}, 1), false);
      NoGradient::apply(out, net->second->weight).sum().backward();
      EXPECT_TRUE(net->first->weight.grad().defined());
      EXPECT_FALSE(net->second->weight.grad().defined());
    }
  });
}

TEST(GraphShapes, D8ATiedParameterThatIsNotUsedStaysUndefined) {
  run_ranks(2, [](ProcessGroup group) {
    Choosing net;
    net->register_module("again", net->second);
    DistributedDataParallel model(net, group, one_each().find_unused_parameters(true));
    model(constant({1, 1}, group.rank()), false).sum().backward();
    EXPECT_EQ(gradient_of(net->first), 0.5f);
    EXPECT_FALSE(net->second->weight.grad().defined());
  });
}

TEST(GraphShapes, D14DoubleBackwardIsRefusedByName) {
  run_ranks(2, [](ProcessGroup group) {
    Linear net = scalar_layer();
    DistributedDataParallel model(net, group);
    const std::string text = error_of([&] {
      model(torch::ones({1, 1})).pow(2).sum().backward({}, std::nullopt, /*create_graph=*/true);
    });
    EXPECT_THAT(text, HasSubstr("backward with create_graph reached weight"));
    EXPECT_THAT(text, HasSubstr("torch::autograd::grad"));
  });
}

// The remedy of that message: torch::autograd::grad is no pass, backward on the sum is one.
TEST(GraphShapes, D14AGradientPenaltyIsAveraged) {
  run_ranks(2, [](ProcessGroup group) {
    Choosing net;
    DistributedDataParallel model(net, group, one_each().find_unused_parameters(true));
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
  run_ranks(2, [](ProcessGroup group) {
    Throwing net;
    DistributedDataParallel model(net, group);
    EXPECT_THROW(model(torch::ones({1, 1}), true), std::domain_error);
    model(constant({1, 1}, group.rank()), false).sum().backward();
    EXPECT_EQ(gradient_of(net->first), 2);
  });
}

TEST(GraphShapes, AnExceptionInBackwardIsToldAtTheNextForward) {
  run_ranks(2, [](ProcessGroup group) {
    Throwing net;
    DistributedDataParallel model(net, group, one_each());
    const torch::Tensor out = model(torch::ones({1, 1}), false);
    net->first->weight.register_hook(
        [](const torch::Tensor&) -> torch::Tensor { throw std::domain_error("backward"); });
    EXPECT_THROW(out.sum().backward(), std::exception);
    EXPECT_THAT(
        error_of([&] {
          model(torch::ones({1, 1}), false);
        }),
        HasSubstr("an earlier backward of rank"));
  });
}

}  // namespace
}  // namespace lockstep
