// What a forward may do: several outputs, several forwards before one backward, gradients of
// gradients, exceptions. Cases D8 and D14 of the conformance list, restated from PyTorch's
// distributed_test.py.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <map>
#include <string>
#include <tuple>

#include "replica_checks.h"
#include "tests/comm/group_factory.h"
#include "tests/support/message_of.h"
#include "three_layers.h"
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/nn/modules/linear.h>

#include "lockstep/comm/process_group.h"
#include "lockstep/parallel/distributed_data_parallel.h"

namespace lockstep {
namespace {

using testing::Choosing;
using testing::constant;
using testing::gradient_of;
using ::testing::HasSubstr;
using testing::message_of;
using testing::one_each;
using testing::scalar_layer;
using testing::ThreeLayersImpl;
using torch::nn::Linear;

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
  testing::run_ranks(2, [](ProcessGroup group) {
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
  testing::run_ranks(2, [](ProcessGroup group) {
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
  testing::run_ranks(2, [](ProcessGroup group) {
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
  testing::run_ranks(2, [](ProcessGroup group) {
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
  testing::run_ranks(2, [](ProcessGroup group) {
    Choosing net;
    net->register_module("again", net->second);
    DistributedDataParallel model(net, group, one_each().find_unused_parameters(true));
    model(constant({1, 1}, group.rank()), false).sum().backward();
    EXPECT_EQ(gradient_of(net->first), 0.5f);
    EXPECT_FALSE(net->second->weight.grad().defined());
  });
}

TEST(GraphShapes, D14DoubleBackwardIsRefusedByName) {
  testing::run_ranks(2, [](ProcessGroup group) {
    Linear net = scalar_layer();
    DistributedDataParallel model(net, group);
    const std::string text = message_of<std::exception>([&] {
      model(torch::ones({1, 1})).pow(2).sum().backward({}, std::nullopt, /*create_graph=*/true);
    });
    EXPECT_THAT(text, HasSubstr("backward with create_graph reached weight"));
    EXPECT_THAT(text, HasSubstr("torch::autograd::grad"));
  });
}

// The remedy of that message: torch::autograd::grad is no pass, backward on the sum is one.
TEST(GraphShapes, D14AGradientPenaltyIsAveraged) {
  testing::run_ranks(2, [](ProcessGroup group) {
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
  testing::run_ranks(2, [](ProcessGroup group) {
    Throwing net;
    DistributedDataParallel model(net, group);
    EXPECT_THROW(model(torch::ones({1, 1}), true), std::domain_error);
    model(constant({1, 1}, group.rank()), false).sum().backward();
    EXPECT_EQ(gradient_of(net->first), 2);
  });
}

TEST(GraphShapes, AnExceptionInBackwardIsToldAtTheNextForward) {
  testing::run_ranks(2, [](ProcessGroup group) {
    Throwing net;
    DistributedDataParallel model(net, group, one_each());
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

}  // namespace
}  // namespace lockstep
