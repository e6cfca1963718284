#include "lockstep/nn/conv/convolution.h"

#include <optional>
#include <thread>

#include "tests/nn/conv/reference.h"
#include <ATen/core/grad_mode.h>
#include <c10/core/InferenceMode.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/function.h>
#include <torch/nn/modules/conv.h>

#include "lockstep/core/error.h"
#include "lockstep/nn/autocast.h"

namespace lockstep::nn::conv {
namespace {

constexpr TestShape kShape{2, 40, 48, 9, 9, 1};

class Convolution : public ::testing::Test {
 protected:
  Convolution() { torch::manual_seed(1); }
};

// Not where no gradient is wanted: then nothing is recorded.
bool is_own(const at::Tensor& output) {
  return output.grad_fn() && output.grad_fn()->name().find("Winograd") != std::string::npos;
}

torch::nn::Conv2d module_of(const torch::nn::Conv2dOptions& options) {
  torch::nn::Conv2d module(options);
  module->to(at::kCPU, at::kFloat);
  module->weight.set_data(module->weight.contiguous(at::MemoryFormat::ChannelsLast));
  return module;
}

at::Tensor images_of(at::IntArrayRef sizes) {
  return at::randn(sizes).contiguous(at::MemoryFormat::ChannelsLast);
}

torch::nn::Conv2dOptions usual_options() { return torch::nn::Conv2dOptions(40, 48, 3).padding(1); }

TEST_F(Convolution, OfAnUnchangedModuleIsOursInAScope) {
  auto module = module_of(usual_options());
  const auto images = images_of({2, 40, 9, 9});
  EXPECT_FALSE(is_own(module(images)));
  {
    const KernelScope scope(Kernels::kOwn);
    EXPECT_TRUE(is_own(module(images)));
    at::Tensor elsewhere;
    std::thread([&] { elsewhere = module(images); }).join();
    EXPECT_TRUE(is_own(elsewhere));
    const KernelScope inner(Kernels::kLibTorch);
    EXPECT_FALSE(is_own(module(images)));
  }
  EXPECT_FALSE(is_own(module(images)));
}

Outcome run_module(const Given& given, Kernels who) {
  const KernelScope scope(who);
  auto module = module_of(usual_options());
  module->weight.set_data(given.weight.clone());
  module->bias.set_data(given.bias.clone());
  auto images = given.images.clone().set_requires_grad(true);
  const auto output = module(images);
  EXPECT_EQ(is_own(output), who == Kernels::kOwn);
  EXPECT_TRUE(output.is_contiguous(at::MemoryFormat::ChannelsLast));
  output.backward(given.gradient);
  EXPECT_TRUE(module->bias.grad().allclose(given.gradient.sum({0, 2, 3}), 1e-5, 1e-5));
  return {output.detach(), images.grad(), module->weight.grad()};
}

TEST_F(Convolution, GradientsAgreeWithDoublePrecision) {
  const Given given(kShape);
  const Outcome exact = reference(given, 1), absolute = reference(given, 1, true);
  const Outcome own = run_module(given, Kernels::kOwn);
  expect_close(own.output, exact.output, absolute.output, kLargeTileTolerance, "output");
  expect_close(own.images, exact.images, absolute.images, kLargeTileTolerance, "images");
  expect_close(own.weight, exact.weight, absolute.weight, kLargeTileTolerance, "weight");
  const Outcome theirs = run_module(given, Kernels::kLibTorch);
  EXPECT_FALSE(own.output.equal(theirs.output)) << "the same program twice";
}

TEST_F(Convolution, ComputesOnlyTheGradientsThatAreWanted) {
  const KernelScope scope(Kernels::kOwn);
  auto module = module_of(usual_options());
  module->weight.set_requires_grad(false);
  const auto images = images_of({2, 40, 9, 9}).set_requires_grad(true);
  module(images).sum().backward();
  EXPECT_TRUE(images.grad().defined());
  EXPECT_FALSE(module->weight.grad().defined());
  EXPECT_TRUE(module->bias.grad().defined());
}

TEST_F(Convolution, DoesWithoutBias) {
  const KernelScope scope(Kernels::kOwn);
  auto module = module_of(usual_options());
  auto without = module_of(usual_options().bias(false));
  module->bias.detach().zero_();
  without->weight.set_data(module->weight.clone());
  const auto images = images_of({2, 40, 9, 9});
  const auto output = without(images);
  EXPECT_TRUE(is_own(output));
  EXPECT_TRUE(output.equal(module(images)));
  output.sum().backward();
  module(images).sum().backward();
  EXPECT_TRUE(without->weight.grad().equal(module->weight.grad()));
}

TEST_F(Convolution, HasTheSameBitsWithoutGradients) {
  const KernelScope scope(Kernels::kOwn);
  auto module = module_of(usual_options());
  const auto images = images_of({2, 40, 9, 9});
  const auto recorded = module(images).detach();
  {
    const at::NoGradGuard guard;
    EXPECT_TRUE(module(images).equal(recorded));
  }
  const c10::InferenceMode guard;
  EXPECT_TRUE(module(images).equal(recorded));
}

TEST_F(Convolution, RefusesASecondDerivative) {
  const KernelScope scope(Kernels::kOwn);
  auto module = module_of(usual_options());
  const auto images = images_of({2, 40, 9, 9}).set_requires_grad(true);
  const auto output = module(images).square().sum();
  EXPECT_THROW(torch::autograd::grad({output}, {images}, {}, std::nullopt, true), Error);
}

// What a training must leave alone; the results are LibTorch's in every bit.
void expect_left_alone(
    const torch::nn::Conv2dOptions& options, const at::Tensor& images, const char* what) {
  auto module = module_of(options);
  const auto theirs = module(images);
  const KernelScope scope(Kernels::kOwn);
  const auto output = module(images);
  EXPECT_FALSE(is_own(output)) << what;
  EXPECT_TRUE(output.equal(theirs)) << what;
  EXPECT_EQ(output.strides(), theirs.strides()) << what;
}

TEST_F(Convolution, LeavesOtherConvolutionsToLibTorch) {
  const auto images = images_of({2, 40, 9, 9});
  const auto usual = usual_options;
  expect_left_alone(usual().stride(2), images, "stride");
  expect_left_alone(usual().dilation(2), images, "dilation");
  expect_left_alone(usual().groups(2), images, "groups");
  expect_left_alone(usual().padding(2), images, "padding");
  expect_left_alone(usual().padding({1, 0}), images, "unequal padding");
  expect_left_alone(usual().padding(torch::kSame), images, "padding by name");
  expect_left_alone(usual().padding_mode(torch::kCircular).stride(2), images, "circular");
  expect_left_alone(torch::nn::Conv2dOptions(40, 8, 5), images, "5x5");
  expect_left_alone(
      torch::nn::Conv2dOptions(40, 8, 1), images_of({16, 40, 9, 9}), "1x1 of many images");
  expect_left_alone(usual(), images[0].clone(), "one image without a batch");
  expect_left_alone(usual(), images.narrow(0, 0, 0), "no image");
}

TEST_F(Convolution, LeavesOtherOrdersToLibTorch) {
  torch::nn::Conv2d module(usual_options());
  const KernelScope scope(Kernels::kOwn);
  const auto output = module(at::randn({2, 40, 9, 9}));
  EXPECT_FALSE(is_own(output));
  EXPECT_TRUE(output.is_contiguous());
}

TEST_F(Convolution, ComputesInBf16UnderAutocast) {
  const KernelScope scope(Kernels::kOwn);
  auto module = module_of(usual_options());
  const auto images = images_of({2, 40, 9, 9}).set_requires_grad(true);
  const auto exact = module(images);
  const Autocast autocast(at::kCPU);
  const auto output = module(images);
  EXPECT_TRUE(is_own(output));
  EXPECT_EQ(output.scalar_type(), at::kBFloat16);
  EXPECT_TRUE(output.to(at::kFloat).allclose(exact, 0.02, 0.02));
  output.sum().backward();
  EXPECT_EQ(images.grad().scalar_type(), at::kFloat);
  EXPECT_EQ(module->weight.grad().scalar_type(), at::kFloat);
}

TEST_F(Convolution, LeavesOtherTypesToLibTorch) {
  const KernelScope scope(Kernels::kOwn);
  auto module = module_of(usual_options());
  const auto images = images_of({2, 40, 9, 9});
  EXPECT_THROW(module(images.to(at::kBFloat16)), c10::Error) << "weights of another type";
  for (const auto type : {at::kDouble, at::kHalf}) {
    module->to(type);
    EXPECT_FALSE(is_own(module(images.to(type))));
  }
}

TEST_F(Convolution, RefusesWhatLibTorchRefuses) {
  const KernelScope scope(Kernels::kOwn);
  auto module = module_of(usual_options());
  EXPECT_THROW(module(images_of({2, 41, 9, 9})), c10::Error);
  auto unpadded = module_of(usual_options().padding(0));
  EXPECT_THROW(unpadded(images_of({2, 40, 2, 9})), c10::Error);
}

TEST_F(Convolution, ByDefaultChoosesByShape) {
  const KernelScope scope(Kernels::kAuto);
  auto stem = module_of(torch::nn::Conv2dOptions(3, 48, 3).padding(1));
  EXPECT_FALSE(is_own(stem(images_of({8, 3, 16, 16}))));
}

}  // namespace
}  // namespace lockstep::nn::conv
