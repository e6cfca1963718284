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

}  // namespace
}  // namespace lockstep
