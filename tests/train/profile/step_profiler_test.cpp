#include "lockstep/train/profile/step_profiler.h"

#include <algorithm>
#include <functional>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <vector>

#include <ATen/core/ivalue.h>
#include <ATen/ops/rand.h>
#include <ATen/ops/zeros.h>
#include <ATen/record_function.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/linear.h>
#include <torch/types.h>

#include "lockstep/core/error.h"
#include "lockstep/nn/models/model.h"

namespace lockstep {
namespace {

using ::testing::HasSubstr;

const torch::Tensor kImages = at::zeros({2, 3});

std::vector<LayerCosts> no_chain(const ChainInput& /*input*/) { return {}; }

// Makes steps, each with a batch of so many images.
void make_steps(StepProfiler& profiler, const std::vector<std::int64_t>& batches) {
  for (const std::int64_t images : batches) {
    profiler.begin_step();
    profiler.end_step(at::zeros({images, 3}));
  }
}

// A group of one: rank 0 of a run without a launcher.
TEST(StepProfiler, MeasuresTenStepsAfterThree) {
  StepProfiler profiler(nn::NamedTensors(), ProcessGroup(), {}, torch::kFloat);
  for (int step = 0; step < 20; ++step) {
    profiler.begin_step();
    EXPECT_EQ(SpanRecorder::is_on(), step >= 3 && step < 13) << step;
    profiler.end_step(kImages);
    EXPECT_FALSE(SpanRecorder::is_on());
  }
  const auto files = profiler.finish(no_chain);
  ASSERT_TRUE(files.has_value());
  EXPECT_EQ(files->profile.ranks.at(0).steps, 10);
  EXPECT_TRUE(files->profile.ranks[0].chain.empty());
  EXPECT_GT(files->profile.peak().value_or(0), 1e8);
}

// The last batch of an epoch may be smaller.
TEST(StepProfiler, MeasuresTheChainWithTheLargestBatch) {
  StepProfiler profiler(nn::NamedTensors(), ProcessGroup(), {}, torch::kFloat);
  make_steps(profiler, {9, 9, 9, 2, 4, 3});
  int measurements = 0;
  const auto files = profiler.finish([&](const ChainInput& input) {
    ++measurements;
    EXPECT_EQ(input.batch_size(), 4);
    return std::vector<LayerCosts>{{.name = "only", .forward = 1}};
  });
  EXPECT_EQ(measurements, 1);
  ASSERT_TRUE(files.has_value());
  EXPECT_EQ(files->profile.ranks.at(0).batch, 4);
  EXPECT_EQ(files->profile.ranks[0].chain.at(0).name, "only");
}

TEST(StepProfiler, HasNothingOfARunThatOnlyWarmedUp) {
  StepProfiler profiler(nn::NamedTensors(), ProcessGroup(), {}, torch::kFloat);
  make_steps(profiler, {2, 2, 2});
  EXPECT_FALSE(profiler.finish(no_chain).has_value());
}

// A step of many parts that a signal ends.
TEST(StepProfiler, LeavesOutAStepThatWasAbandoned) {
  StepProfiler profiler(nn::NamedTensors(), ProcessGroup(), {}, torch::kFloat);
  make_steps(profiler, {2, 2, 2, 2});
  profiler.begin_step();
  const auto files = profiler.finish(no_chain);
  EXPECT_FALSE(SpanRecorder::is_on());
  ASSERT_TRUE(files.has_value());
  EXPECT_EQ(files->profile.ranks.at(0).steps, 1);
}

TEST(ProfileOfAnAccelerator, GivesNoLayerTheWaitForLibTorchsThread) {
  SpanLane main{.thread = "main", .number = 1, .is_main = true},
      engine{.thread = "pt_autograd_0", .number = 2};
  main.spans = {{.name = "backward", .activity = Activity::kBackward, .begin = 10, .end = 90},
      {.name = "step 4", .begin = 0, .end = 100}};
  engine.spans = {
      {.name = "AddmmBackward0", .activity = Activity::kGradientNode, .begin = 20, .end = 50}};
  const RankProfile profile = profile_of({main, engine});
  ASSERT_EQ(profile.layers.size(), 1U);
  EXPECT_DOUBLE_EQ(profile.layers[0].backward, 30e-6);
  EXPECT_DOUBLE_EQ(profile.lanes.at(0).of(StepPhase::kBackward), 80e-6);
}

// The steps of the profile are longer than those of the training.
TEST(ProfileOfAnAccelerator, HasTheTimeOfAStepThatIsNotWaitedFor) {
  const RunProfile run{.precision = "float32",
      .ranks = {{.steps = 10, .step = 100, .unwaited_step = 25, .flops = 2e9}}};
  EXPECT_THAT(profile_text(run), HasSubstr("without that a step takes 25.00 ms"));
  EXPECT_THAT(arithmetic_text(run), HasSubstr("80.0 GFLOP/s"));
  const std::string text = profile_json(run), written = "\"unwaited_step_ms\":25.0";
  EXPECT_EQ(read_profile(text, "profile.json").ranks.at(0).unwaited_step, 25);
  ASSERT_THAT(text, HasSubstr(written));
  const std::string without_time =
      std::string(text).replace(text.find(written), written.size(), "\"unwaited_step_ms\":0.0");
  EXPECT_THROW(read_profile(without_time, "profile.json"), DataError);
}

// The net computes, and its chain is a function around it.
struct WithoutChain : nn::ModelImpl {
  torch::Tensor forward(torch::Tensor images) override { return images * weight; }
  nn::Layers layers() const override {
    nn::Layers whole;
    whole.insert("net", nn::layer_of([](const torch::Tensor& images) { return images; }));
    return whole;
  }
  torch::Tensor weight = register_parameter("weight", at::rand({10}));
};

struct TiedPair : torch::nn::Module {
  torch::Tensor forward(const torch::Tensor& x) { return x.matmul(a).matmul(b); }
  torch::Tensor a = register_parameter("a", at::rand({10, 10}));
  torch::Tensor b = register_parameter("b", a);
};

struct TiedChain : nn::ModelImpl {
  TiedChain() {
    append("one", register_module("one", pair));
    append("two", register_module("two", std::make_shared<TiedPair>()));
    pair->register_parameter("c", pair->a);
  }
  std::shared_ptr<TiedPair> pair = std::make_shared<TiedPair>();
};

TEST(ChainCosts, OfTiedWeightsAreOfEachLayerAndCountThemOnce) {
  const std::shared_ptr<nn::ModelImpl> net = std::make_shared<TiedChain>();
  const auto chain = chain_costs(nn::Model(net), at::rand({2, 10}));
  ASSERT_EQ(chain.size(), 2U);
  for (const LayerCosts& layer : chain)
    EXPECT_EQ(layer.parameter_bytes, std::vector<std::int64_t>{400}) << layer.name;
}

TEST(ChainCosts, OfANetThatIsNoChainAreOneLayers) {
  const std::shared_ptr<nn::ModelImpl> net = std::make_shared<WithoutChain>();
  const auto chain = chain_costs(nn::Model(net), at::rand({2, 10}));
  ASSERT_EQ(chain.size(), 1U);
  EXPECT_EQ(chain[0].name, "net");
  EXPECT_GT(chain[0].backward_weight, 0);
  EXPECT_EQ(chain[0].parameter_bytes, std::vector<std::int64_t>{40});
}

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
  EXPECT_EQ(profile.product_flops, 2.0 * 512 * 1000) << "its last layer; all else is convolutions";
}

// Images need no gradient, so the first layer makes two products and the second three.
TEST(OperatorRecorder, CountsTheProductsThatBackwardMakes) {
  nn::Model model = nn::make_model("toy", 5);
  const auto profile = profile_while(nn::named_state(*model), [&] {
    forward_and_backward([&] { return model(torch::ones({8, 10})); });
  });
  EXPECT_EQ(profile.flops, 2 * (2.0 * 8 * 10 * 10) + 3 * (2.0 * 8 * 10 * 5));
  EXPECT_EQ(profile.product_flops, profile.flops);
}

// Queries, keys and values are one tensor.
TEST(OperatorRecorder, CountsTheProductsThatBackwardOfPackedAttentionMakes) {
  const auto profile = profile_while(nn::NamedTensors(), [] {
    const SpanScope span(Activity::kForward, "forward");
    const torch::Tensor packed = torch::ones({2, 6, 3, 4, 8}).requires_grad_();
    RECORD_FUNCTION("lockstep::packed_attention", c10::ArrayRef<const c10::IValue>({packed}));
  });
  EXPECT_EQ(profile.flops, 3 * (2.0 * (2 * 4 * 6 * 6) * (8 + 8)));
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
  EXPECT_EQ(forward_flops("aten::conv_transpose2d", {.tensors = {{5, 6, 8, 8}, {6, 2, 4, 4}}}),
      2.0 * (5 * 6 * 8 * 8) * (2 * 4 * 4))
      << "three groups of two outputs, or one";
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
  EXPECT_EQ(forward_flops("lockstep::packed_attention", {.tensors = {{2, 6, 3, 4, 8}}}),
      2.0 * (2 * 4 * 6 * 6) * (8 + 8));
}

TEST(Flops, OfOtherOperatorsAreNotCounted) {
  EXPECT_EQ(forward_flops("aten::relu", {.tensors = {{2, 3}, {3, 5}}}), 0);
  EXPECT_EQ(forward_flops("aten::linear", {.tensors = {{2, 3}}}), 0);
  EXPECT_EQ(forward_flops("aten::conv2d", {.tensors = {{1, 3, 2, 2}, {4, 3, 3, 3}}}), 0);
}

}  // namespace
}  // namespace lockstep
