#include "lockstep/train/profile/operator_recorder.h"

#include <algorithm>
#include <functional>
#include <gtest/gtest.h>

#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/linear.h>
#include <torch/types.h>

#include "lockstep/nn/models/model.h"
#include "lockstep/record/profile/profile.h"

namespace lockstep {
namespace {

RankProfile profile_while(const nn::NamedTensors& state, const std::function<void()>& step) {
  SpanRecorder::set_graph(OperatorRecorder::graph());
  SpanRecorder::take();
  const OperatorRecorder recorder(state, std::nullopt);
  SpanRecorder::start();
  {
    const SpanScope whole(Activity::kStep, "step");
    step();
  }
  SpanRecorder::stop();
  return profile_of(SpanRecorder::take());
}

void forward_and_backward(const std::function<torch::Tensor()>& forward) {
  torch::Tensor loss;
  {
    const SpanScope span(Activity::kForward, "forward");
    loss = forward().sum();
  }
  const SpanScope span(Activity::kBackward, "backward");
  loss.backward();
}

const LayerProfile* find_layer(const RankProfile& profile, const std::string& name) {
  const auto found = std::ranges::find(profile.layers, name, &LayerProfile::name);
  return found == profile.layers.end() ? nullptr : &*found;
}

// torchvision publishes 1.814 billion multiplications and additions.
TEST(OperatorRecorder, CountsTheOperationsOfResNet18) {
  const torch::NoGradGuard no_grad;
  nn::Model model = nn::make_model("resnet18", 1000);
  model->eval();
  const auto profile = profile_while(nn::named_state(*model), [&] {
    const SpanScope span(Activity::kForward, "forward");
    model(torch::zeros({1, 3, 224, 224}));
  });
  EXPECT_EQ(profile.flops, 2.0 * 1'814'073'344);
}

// Images need no gradient, so the first layer makes two products and the second three.
TEST(OperatorRecorder, CountsTheProductsThatBackwardMakes) {
  nn::Model model = nn::make_model("toy", 5);
  const auto profile = profile_while(nn::named_state(*model), [&] {
    forward_and_backward([&] { return model(torch::ones({8, 10})); });
  });
  EXPECT_EQ(profile.flops, 2 * (2.0 * 8 * 10 * 10) + 3 * (2.0 * 8 * 10 * 5));
}

// A net of LibTorch's own modules, without a chain of ours.
TEST(OperatorRecorder, FindsTheLayersOfAnyNet) {
  torch::nn::Sequential net(torch::nn::Conv2d(3, 8, 3), torch::nn::BatchNorm2d(8),
      torch::nn::Flatten(), torch::nn::Linear(torch::nn::LinearOptions(8 * 36, 4)));
  const auto profile = profile_while(nn::named_state(*net), [&] {
    forward_and_backward([&] { return net->forward(torch::ones({2, 3, 8, 8})); });
  });
  for (const char* name : {"0", "1", "3"}) {
    const LayerProfile* const layer = find_layer(profile, name);
    ASSERT_NE(layer, nullptr) << name;
    EXPECT_GT(layer->forward, 0) << name;
    EXPECT_GT(layer->backward, 0) << name;
  }
  EXPECT_EQ(find_layer(profile, "2"), nullptr) << "it has no parameters to be known by";
}

TEST(OperatorRecorder, RecordsNothingOnceItIsGone) {
  profile_while(nn::NamedTensors(), [] {});
  SpanRecorder::start();
  torch::ones({2}).add(1);
  SpanRecorder::stop();
  EXPECT_TRUE(SpanRecorder::take().empty());
}

TEST(Flops, OfConvolutionsFollowTheirPixels) {
  const OperatorShapes same{.tensors = {{2, 3, 8, 8}, {4, 3, 3, 3}, {4}}, .padding = {1, 1}};
  EXPECT_EQ(forward_flops("aten::conv2d", same), 2.0 * (2 * 8 * 8) * (4 * 3 * 3 * 3));
  OperatorShapes halved = same;
  halved.stride = {2};
  EXPECT_EQ(forward_flops("aten::conv2d", halved), 2.0 * (2 * 4 * 4) * (4 * 3 * 3 * 3));
  OperatorShapes wide = same;
  wide.padding = {0};
  wide.dilation = {2, 3};  // reaches of 5 and 7
  EXPECT_EQ(forward_flops("aten::conv2d", wide), 2.0 * (2 * 4 * 2) * (4 * 3 * 3 * 3));
}

TEST(Flops, OfGroupsAreThoseOfTheirChannels) {
  const OperatorShapes groups{.tensors = {{2, 4, 8, 8}, {4, 1, 3, 3}}, .is_padding_same = true};
  EXPECT_EQ(forward_flops("aten::conv2d", groups), 2.0 * (2 * 8 * 8) * (4 * 1 * 3 * 3));
}

TEST(Flops, OfAConvolutionWithoutBatchOrInOneDimension) {
  EXPECT_EQ(forward_flops("aten::conv2d", {.tensors = {{3, 8, 8}, {4, 3, 1, 1}}}), 2.0 * 64 * 12);
  EXPECT_EQ(forward_flops("aten::conv1d", {.tensors = {{5, 3, 8}, {4, 3, 3}}}), 2.0 * 30 * 36);
}

TEST(Flops, OfProductsCountMultiplicationsAndAdditions) {
  EXPECT_EQ(forward_flops("aten::linear", {.tensors = {{128, 6272}, {64, 6272}, {64}}}),
      2.0 * 128 * 6272 * 64);
  EXPECT_EQ(forward_flops("aten::linear", {.tensors = {{2, 5, 7}, {3, 7}}}), 2.0 * 2 * 5 * 7 * 3);
  EXPECT_EQ(forward_flops("aten::mm", {.tensors = {{2, 3}, {3, 5}}}), 2.0 * 2 * 3 * 5);
  EXPECT_EQ(forward_flops("aten::addmm", {.tensors = {{5}, {2, 3}, {3, 5}}}), 2.0 * 2 * 3 * 5);
  EXPECT_EQ(forward_flops("aten::matmul", {.tensors = {{2, 3}, {4, 3, 5}}}), 2.0 * 4 * 2 * 3 * 5);
}

TEST(Flops, OfAttentionAreThoseOfItsTwoProducts) {
  EXPECT_EQ(forward_flops("aten::scaled_dot_product_attention",
                {.tensors = {{2, 4, 6, 8}, {2, 4, 10, 8}, {2, 4, 10, 16}}}),
      2.0 * (2 * 4 * 6 * 10) * (8 + 16));
}

TEST(Flops, OfOtherOperatorsAreNotCounted) {
  EXPECT_EQ(forward_flops("aten::relu", {.tensors = {{2, 3}, {3, 5}}}), 0);
  EXPECT_EQ(forward_flops("aten::linear", {.tensors = {{2, 3}}}), 0);
  EXPECT_EQ(forward_flops("aten::conv2d", {.tensors = {{1, 3, 2, 2}, {4, 3, 3, 3}}}), 0);
}

}  // namespace
}  // namespace lockstep
