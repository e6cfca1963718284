#include "lockstep/nn/conv/convolution.h"

#include <cstdlib>
#include <gtest/gtest.h>
#include <initializer_list>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "tests/nn/conv/reference.h"
#include <ATen/Context.h>
#include <ATen/Parallel.h>
#include <ATen/core/grad_mode.h>
#include <ATen/native/ConvUtils.h>
#include <ATen/ops/_make_dual.h>
#include <ATen/ops/_unpack_dual.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/zeros.h>
#include <c10/core/InferenceMode.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/function.h>
#include <torch/nn/modules/conv.h>
#include <torch/types.h>

#include "lockstep/core/error.h"
#include "lockstep/nn/autocast.h"
#include "lockstep/nn/conv/winograd.h"
#include "lockstep/nn/fused/batch_norm_relu.h"
#include "lockstep/nn/fused/conv_relu_pool.h"

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

torch::nn::Conv2dOptions usual_options() { return torch::nn::Conv2dOptions(40, 48, 3).padding(1); }

TEST_F(Convolution, OfAnUnchangedModuleIsOursInAScope) {
  auto module = module_of(usual_options());
  const auto images = drawn({2, 40, 9, 9});
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
  const auto images = drawn({2, 40, 9, 9}).set_requires_grad(true);
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
  const auto images = drawn({2, 40, 9, 9});
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
  const auto images = drawn({2, 40, 9, 9});
  const auto recorded = module(images).detach();
  {
    const at::NoGradGuard guard;
    EXPECT_TRUE(module(images).equal(recorded));
  }
  const c10::InferenceMode guard;
  EXPECT_TRUE(module(images).equal(recorded));
}

// A gradient penalty on the images, by the weights; and with images in another order than the
// kernels read.
TEST_F(Convolution, HasSecondDerivativesAsLibTorch) {
  auto module = module_of(usual_options());
  for (const bool is_channels_last : {true, false}) {
    const auto given = drawn({2, 40, 9, 9});
    const auto images = (is_channels_last ? given : given.contiguous()).set_requires_grad(true);
    const std::vector<at::Tensor> wanted{images, module->weight, module->bias};
    const auto second = [&](Kernels who) {
      const KernelScope scope(who);
      const auto output = module(images);
      EXPECT_EQ(is_own(output), who == Kernels::kOwn);
      at::Tensor penalty = at::zeros({});
      const auto loss = output.pow(3).mean();
      for (const auto& gradient : torch::autograd::grad({loss}, wanted, {}, std::nullopt, true))
        penalty = penalty + gradient.square().sum();
      return torch::autograd::grad({penalty}, wanted);
    };
    const auto ours = second(Kernels::kOwn), theirs = second(Kernels::kLibTorch);
    for (std::size_t i = 0; i < theirs.size(); ++i) {
      const double size = theirs[i].abs().max().item<double>();
      EXPECT_TRUE(ours[i].allclose(theirs[i], 1e-3, 1e-4 * size)) << i;
    }
  }
}

// As LibTorch, which saves the images too.
TEST_F(Convolution, NoticesThatSavedImagesWereChanged) {
  const KernelScope scope(Kernels::kOwn);
  auto module = module_of(usual_options());
  const auto images = drawn({2, 40, 9, 9}).contiguous();
  const auto output = module(images);
  EXPECT_TRUE(is_own(output));
  images.add_(1);
  EXPECT_THROW(output.sum().backward(), c10::Error);
}

TEST_F(Convolution, LeavesForwardModeToLibTorch) {
  auto module = module_of(usual_options());
  const auto level = static_cast<std::int64_t>(torch::autograd::forward_ad::enter_dual_level());
  const auto input = at::_make_dual(drawn({2, 40, 9, 9}), drawn({2, 40, 9, 9}), level);
  const auto tangent = [&](Kernels who) {
    const KernelScope scope(who);
    return std::get<1>(at::_unpack_dual(module(input), level)).clone();
  };
  EXPECT_TRUE(tangent(Kernels::kOwn).allclose(tangent(Kernels::kLibTorch)));
  torch::autograd::forward_ad::exit_dual_level(static_cast<std::uint64_t>(level));
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
  const auto images = drawn({2, 40, 9, 9});
  const auto usual = usual_options;
  expect_left_alone(usual().dilation(2), images, "dilation");
  expect_left_alone(usual().groups(2), images, "groups");
  expect_left_alone(usual().padding(2), images, "padding");
  expect_left_alone(usual().padding({1, 0}), images, "unequal padding");
  expect_left_alone(usual().padding(torch::kSame), images, "padding by name");
  expect_left_alone(usual().padding_mode(torch::kCircular).dilation(2), images, "circular");
  expect_left_alone(torch::nn::Conv2dOptions(40, 8, 5), images, "5x5");
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
  const auto images = drawn({2, 40, 9, 9}).set_requires_grad(true);
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
  const auto images = drawn({2, 40, 9, 9});
  EXPECT_THROW(module(images.to(at::kBFloat16)), c10::Error) << "weights of another type";
  for (const auto type : {at::kDouble, at::kHalf}) {
    module->to(type);
    EXPECT_FALSE(is_own(module(images.to(type))));
  }
}

TEST_F(Convolution, RefusesWhatLibTorchRefuses) {
  const KernelScope scope(Kernels::kOwn);
  auto module = module_of(usual_options());
  EXPECT_THROW(module(drawn({2, 41, 9, 9})), c10::Error);
  auto unpadded = module_of(usual_options().padding(0));
  EXPECT_THROW(unpadded(drawn({2, 40, 2, 9})), c10::Error);
}

/// The result of a call, or the first line of what it throws.
struct CallResult {
  at::Tensor output;
  std::string error;
};

CallResult result_of_call(Kernels who, const at::Tensor& images, const at::Tensor& weight,
    at::IntArrayRef stride, at::IntArrayRef padding, at::IntArrayRef dilation) {
  const KernelScope scope(who);
  try {
    return {at::conv2d(images, weight, {}, stride, padding, dilation), ""};
  } catch (const c10::Error& error) {
    const std::string text = error.what_without_backtrace();
    return {{}, text.substr(0, text.find('\n'))};
  }
}

TEST_F(Convolution, TakesEveryListAsLibTorchDoes) {
  const std::vector<std::vector<std::int64_t>> lists{
      {}, {1}, {1, 1}, {1, 1, 1}, {0}, {-1}, {-1, 0}};
  for (const std::int64_t kernel : {1, 2, 3}) {
    const auto images = drawn({2, 40, kernel + 1, kernel + 1});
    const auto weight = drawn({24, 40, kernel, kernel});
    for (const auto& stride : lists) {
      for (const auto& padding : lists) {
        for (const auto& dilation : lists) {
          const auto given = concat("stride ", at::IntArrayRef(stride), " padding ",
              at::IntArrayRef(padding), " dilation ", at::IntArrayRef(dilation));
          const auto ours =
              result_of_call(Kernels::kOwn, images, weight, stride, padding, dilation);
          const auto theirs =
              result_of_call(Kernels::kLibTorch, images, weight, stride, padding, dilation);
          EXPECT_EQ(ours.error, theirs.error) << given;
          ASSERT_EQ(ours.output.defined(), theirs.output.defined()) << given;
          if (ours.output.defined()) {
            EXPECT_TRUE(ours.output.allclose(theirs.output, 1e-4, 1e-3)) << given;
          }
        }
      }
    }
  }
}

TEST_F(Convolution, ByDefaultChoosesByShape) {
  const KernelScope scope(Kernels::kAuto);
  auto stem = module_of(torch::nn::Conv2dOptions(3, 48, 3).padding(1));
  EXPECT_FALSE(is_own(stem(drawn({8, 3, 16, 16}))));
}

using simd::InstructionSet;

struct Choice {
  ConvolutionShape shape;
  InstructionSet ours;
  Multiplier theirs;
  bool is_ours;
  const char* why;
};

TEST(ConvolutionChoice, IsTheFaster) {
  constexpr auto kPlain = InstructionSet::kPlain, kAvx2 = InstructionSet::kAvx2,
                 kAvx512 = InstructionSet::kAvx512;
  constexpr auto kFloat = Multiplier::kFloat, kBf16 = Multiplier::kAvx512Bf16;
  constexpr ConvolutionShape kUsual{64, 64, 64, 32, 32}, kFew{4, 512, 512, 14, 14},
      kSmall{16, 512, 512, 7, 7}, kTiny{128, 256, 256, 2, 2};
  for (const auto& [shape, ours, theirs, is_ours, why] : std::initializer_list<Choice>{
           {kUsual, kAvx2, kFloat, true, "usual"}, {kUsual, kAvx512, kFloat, true, "usual"},
           {kFew, kAvx2, kFloat, true, "few images"}, {kFew, kAvx512, kFloat, true, "few images"},
           {kSmall, kAvx2, kFloat, true, "7 x 7"}, {kSmall, kAvx512, kFloat, true, "7 x 7"},
           {kTiny, kAvx2, kFloat, true, "2 x 2"}, {kTiny, kAvx512, kFloat, true, "2 x 2"},
           {{64, 3, 64, 32, 32}, kAvx512, kFloat, false, "a stem"},
           {{64, 64, 3, 32, 32}, kAvx512, kFloat, false, "few outputs"},
           {{64, 512, 512, 1, 1}, kAvx512, kFloat, false, "single pixels"},
           {{1, 512, 512, 7, 7}, kAvx512, kFloat, false, "few tiles"},
           {kUsual, kPlain, kFloat, false, "no vectors"},
           {kUsual, kAvx512, kBf16, true, "usual in bf16"},
           {kFew, kAvx512, kBf16, false, "few tiles in bf16"},
           {kTiny, kAvx512, kBf16, false, "tiles of 2 x 2 in bf16"},
           {kUsual, kAvx512, Multiplier::kAmx, false, "AMX"},
           {kFew, kAvx2, Multiplier::kConverted, true, "bf16 as floats"}})
    EXPECT_EQ(is_own_faster(shape, ours, theirs), is_ours) << why;
}

TEST(ConvolutionChoice, TakesTheTileWithFewerProducts) {
  EXPECT_EQ(fitting_tile({1, 8, 8, 2, 2}), 2);
  EXPECT_EQ(fitting_tile({1, 8, 8, 2, 16}), 2);
  EXPECT_EQ(fitting_tile({1, 8, 8, 3, 3}), 4);
  EXPECT_EQ(fitting_tile({1, 8, 8, 5, 5}), 4) << "as many products, fewer sums";
  EXPECT_EQ(fitting_tile({1, 8, 8, 32, 32}), 4);
}

TEST(ConvolutionChoice, ReadsWhatMultipliesBf16) {
  EXPECT_EQ(bf16_multiplier("avx512f avx512_bf16 amx_bf16"), Multiplier::kAmx);
  EXPECT_EQ(bf16_multiplier("avx512f avx512_bf16"), Multiplier::kAvx512Bf16);
  EXPECT_EQ(bf16_multiplier("avx2 avx512f"), Multiplier::kConverted);
}

TEST(ConvolutionChoice, OfKernelsIsThatOfTheInstructions) {
  const std::size_t all = winograd_builds().size();
  for (const char* name : {"plain", "avx2", "avx512"}) {
    ::setenv("LOCKSTEP_SIMD", name, 1);
    const std::size_t some = static_cast<std::size_t>(simd::instructions_in_use()) + 1;
    const auto expect_ends = [&](auto builds) {
      EXPECT_STREQ(builds.back()->name, name);
      EXPECT_EQ(builds.size(), some);
    };
    expect_ends(winograd_builds());
    expect_ends(fused::batch_norm_kernels());
    expect_ends(fused::conv_relu_pool_kernels());
    if (some == all) break;
  }
  ::unsetenv("LOCKSTEP_SIMD");
}

// 1x1 convolutions of few images: the same results with rows counted as images, by oneDNN.

TEST(Pointwise, AnImageIsCutIntoTheFewestPartsThatAreEnough) {
  EXPECT_EQ(parts_of_image(8, 56), 2);
  EXPECT_EQ(parts_of_image(1, 56), 28);
  EXPECT_EQ(parts_of_image(8, 7), 7);
  EXPECT_EQ(parts_of_image(3, 7), 7);
  EXPECT_EQ(parts_of_image(2, 7), 1) << "not enough rows";
  EXPECT_EQ(parts_of_image(16, 56), 1);
  EXPECT_EQ(parts_of_image(8, 1), 1);
  EXPECT_EQ(parts_of_image(0, 56), 1);
}

at::native::ConvBackend backend_of(const at::Tensor& images, const at::Tensor& weight) {
  const std::vector<c10::SymInt> ones{1, 1}, zeros{0, 0};
  return at::native::select_conv_backend(images, weight, std::nullopt, ones, zeros, ones, false,
      zeros, 1, at::OptionalSymIntArrayRef());
}

TEST(Pointwise, OneDnnTakesWhatIsCut) {
  if (!at::globalContext().hasMKLDNN()) GTEST_SKIP() << "LibTorch without oneDNN";
  const int threads = at::get_num_threads();
  at::set_num_threads(1);
  const auto images = drawn({8, 32, 14, 14}), weight = drawn({48, 32, 1, 1});
  EXPECT_EQ(backend_of(images, weight), at::native::ConvBackend::Slow2d) << "else there is no need";
  EXPECT_EQ(backend_of(cut_rows(images, 2), weight), at::native::ConvBackend::Mkldnn);
  at::set_num_threads(threads);
}

TEST(Pointwise, CutImagesAreViewsAndJoinAgain) {
  const auto images = drawn({3, 5, 8, 4});
  const auto cut = cut_rows(images, 4);
  EXPECT_EQ(cut.sizes(), (std::vector<std::int64_t>{12, 5, 2, 4}));
  EXPECT_EQ(cut.data_ptr(), images.data_ptr());
  EXPECT_TRUE(cut.is_contiguous(at::MemoryFormat::ChannelsLast));
  EXPECT_TRUE(join_rows(cut, 4).equal(images));
  EXPECT_TRUE(cut[5].equal(images[1].slice(1, 2, 4))) << "the second quarter of image 1";
}

/// A module's output and the gradients of images, weight and bias.
std::vector<at::Tensor> run(Kernels who, const at::Tensor& given, const torch::nn::Conv2d& module,
    const at::Tensor& gradient) {
  const KernelScope scope(who);
  auto images = given.detach().clone().requires_grad_(true);
  auto layer = std::static_pointer_cast<torch::nn::Conv2dImpl>(module->clone());
  const auto output = layer->forward(images);
  output.backward(gradient);
  return {output.detach(), images.grad(), layer->weight.grad(), layer->bias.grad()};
}

// Of few channels they are LibTorch's with AVX2, too, else our products.
void expect_as_libtorch(at::IntArrayRef sizes, std::int64_t outputs) {
  torch::nn::Conv2d module(torch::nn::Conv2dOptions(sizes[1], outputs, 1));
  const auto images = drawn(sizes), gradient = drawn({sizes[0], outputs, sizes[2], sizes[3]});
  const auto own = run(Kernels::kAuto, images, module, gradient);
  const auto libtorch = run(Kernels::kLibTorch, images, module, gradient);
  for (std::size_t i = 0; i < own.size(); ++i)
    EXPECT_TRUE(own[i].allclose(libtorch[i], 1e-4, 1e-4)) << i << " of " << sizes;
  EXPECT_TRUE(own[0].is_contiguous(at::MemoryFormat::ChannelsLast));
}

TEST(Pointwise, ResultsAndGradientsAreLibTorchs) {
  torch::manual_seed(1);
  const int threads = at::get_num_threads();
  at::set_num_threads(1);
  for (const std::int64_t images : {1, 2, 3, 8, 15, 16, 20})
    for (const std::int64_t height : {1, 2, 6, 7, 12})
      for (const std::int64_t width : {1, 5})
        for (const std::int64_t inputs : {8, 24})
          expect_as_libtorch({images, inputs, height, width}, 40);
  at::set_num_threads(threads);
}

}  // namespace
}  // namespace lockstep::nn::conv
