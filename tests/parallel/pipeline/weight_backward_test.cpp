#include "lockstep/parallel/pipeline/weight_backward.h"

#include <gtest/gtest.h>

#include "serial_reference.h"
#include <ATen/ops/conv2d.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/linear.h>

namespace lockstep {
namespace {

bool any_gradient(const torch::nn::Module& net) {
  for (const auto& parameter : net.parameters()) {
    if (parameter.grad().defined()) return true;
  }
  return false;
}

// Backward in two parts gives what backward in one gives; the first part touches no parameter.
void expect_same_in_two_parts(auto net, auto copy, const torch::Tensor& input) {
  const auto whole = input.clone().requires_grad_();
  const auto parts = input.clone().requires_grad_();
  const auto weights = torch::randn_like(net->forward(input));
  net->zero_grad();
  (net->forward(whole) * weights).sum().backward();
  auto rest = backward_inputs({copy->forward(parts)}, {weights}, {parts});
  EXPECT_FALSE(any_gradient(*copy));
  testing::expect_close(parts.grad(), whole.grad(), 1e-12, "input");
  rest.run();
  testing::expect_same_gradients(*copy, *net, 1e-12);
}

TEST(WeightBackward, LinearChain) {
  const auto net = testing::make_chain({3, 5, 4, 2});
  expect_same_in_two_parts(net, testing::copy_of(net), torch::randn({6, 3}, torch::kDouble));
}

TEST(WeightBackward, ConvolutionsAndBatchNorm) {
  torch::nn::Sequential net(torch::nn::Conv2d(3, 4, 3), torch::nn::BatchNorm2d(4),
      torch::nn::ReLU(torch::nn::ReLUOptions(true)),
      torch::nn::Conv2d(torch::nn::Conv2dOptions(4, 2, 3).bias(false)), torch::nn::BatchNorm2d(2));
  net->to(torch::kDouble);
  expect_same_in_two_parts(net, testing::copy_of(net), torch::randn({4, 3, 8, 8}, torch::kDouble));
}

struct ResidualImpl : torch::nn::Module {
  ResidualImpl() { register_module("a", a), register_module("b", b); }
  torch::Tensor forward(const torch::Tensor& input) {
    const auto inner = a(input).tanh() + input;
    return b(inner).tanh() * inner + input;
  }
  torch::nn::Linear a{4, 4}, b{4, 4};
};
TORCH_MODULE(Residual);

TEST(WeightBackward, SkipConnectionsInsideAStage) {
  Residual net, copy;
  net->to(torch::kDouble), copy->to(torch::kDouble);
  const torch::NoGradGuard no_grad;
  copy->a->weight.copy_(net->a->weight), copy->a->bias.copy_(net->a->bias);
  copy->b->weight.copy_(net->b->weight), copy->b->bias.copy_(net->b->bias);
  const torch::AutoGradMode grad(true);
  expect_same_in_two_parts(net, copy, torch::randn({5, 4}, torch::kDouble));
}

/// A node of two outputs, as an LSTM's layer is.
struct TwoOutputs : torch::autograd::Function<TwoOutputs> {
  static torch::autograd::variable_list forward(torch::autograd::AutogradContext* context,
      const torch::Tensor& input, const torch::Tensor& weight) {
    context->save_for_backward({input, weight});
    return {input * weight, input + weight};
  }
  static torch::autograd::variable_list backward(
      torch::autograd::AutogradContext* context, const torch::autograd::variable_list& gradients) {
    const auto saved = context->get_saved_variables();
    const torch::Tensor &both = gradients[0], &sum = gradients[1];
    return {both * saved[1] + sum, (both * saved[0] + sum).sum(0)};
  }
};

struct OneOfTwoImpl : torch::nn::Module {
  OneOfTwoImpl() : weight(register_parameter("weight", torch::full({4}, 3.0, torch::kDouble))) {}
  torch::Tensor forward(const torch::Tensor& input) {
    return TwoOutputs::apply(input, weight)[0].tanh();
  }
  torch::Tensor weight;
};
TORCH_MODULE(OneOfTwo);

TEST(WeightBackward, AnOutputThatNobodyUses) {
  expect_same_in_two_parts(OneOfTwo(), OneOfTwo(), torch::randn({5, 4}, torch::kDouble));
}

// A layer that is used twice on one way cannot be cut: everything is done in the first part.
TEST(WeightBackward, LayerUsedTwiceIsDoneAtOnce) {
  torch::nn::Linear layer(3, 3);
  const auto input = torch::randn({2, 3}).requires_grad_();
  const auto output = layer(layer(input).tanh());
  auto rest = backward_inputs({output}, {torch::ones_like(output)}, {input});
  const auto gradient = layer->weight.grad().clone();
  rest.run();
  EXPECT_TRUE(torch::equal(layer->weight.grad(), gradient));
  layer->zero_grad();
  layer(layer(input).tanh()).sum().backward();
  testing::expect_close(gradient, layer->weight.grad(), 1e-6, "weight");
}

TEST(WeightBackward, WithoutInputsAllIsLeftToTheSecondPart) {
  torch::nn::Linear layer(3, 3);
  const auto output = layer(torch::randn({2, 3}));
  auto rest = backward_inputs({output}, {torch::ones_like(output)}, {});
  EXPECT_FALSE(any_gradient(*layer));
  rest.run();
  EXPECT_TRUE(torch::equal(layer->bias.grad(), torch::full({3}, 2.0)));
}

TEST(WeightBackward, AddsToGradientsThatAreThere) {
  torch::nn::Linear layer(3, 3);
  const auto input = torch::randn({2, 3}).requires_grad_();
  for (int pass = 0; pass < 2; ++pass) {
    const auto output = layer(input);
    backward_inputs({output}, {torch::ones_like(output)}, {input}).run();
  }
  EXPECT_TRUE(torch::equal(layer->bias.grad(), torch::full({3}, 4.0)));
}

// The way to the inputs leads through the layer's output, and so does the way to its parameters.
TEST(WeightBackward, AHookOnTheOutputOfALayerRunsInBothParts) {
  torch::nn::Linear first(3, 3), second(3, 3);
  const auto input = torch::randn({2, 3}).requires_grad_();
  int calls = 0;
  const auto output = [&] {
    const auto inner = first(input);
    inner.register_hook([&](const torch::Tensor&) { ++calls; });
    return second(inner.tanh());
  };
  output().sum().backward();
  EXPECT_EQ(calls, 1);
  const auto cut = output();
  auto rest = backward_inputs({cut}, {torch::ones_like(cut)}, {input});
  EXPECT_EQ(calls, 2) << "in the first part";
  rest.run();
  EXPECT_EQ(calls, 3) << "and once more in the second";
}

}  // namespace
}  // namespace lockstep
