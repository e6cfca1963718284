// Strided convolutions as products of windows: what LibTorch computes in double precision, over
// drawn shapes.

#include "lockstep/nn/conv/windows.h"

#include <array>
#include <gtest/gtest.h>
#include <ostream>
#include <string>
#include <vector>

#include "tests/nn/conv/reference.h"
#include <ATen/Parallel.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/function.h>
#include <torch/types.h>

#include "lockstep/nn/conv/faster_kinds.h"
#include "lockstep/nn/kernels.h"
#include "lockstep/nn/linear/linear.h"

namespace lockstep::nn::conv {
namespace {

struct Strided {
  std::int64_t images, inputs, outputs;
  std::array<std::int64_t, 2> size, kernel, stride, padding;
  bool has_bias = true;
};

std::ostream& operator<<(std::ostream& out, const Strided& shape) {
  return out << shape.images << "x" << shape.inputs << "x" << shape.size[0] << "x" << shape.size[1]
             << " to " << shape.outputs << " by " << shape.kernel[0] << "x" << shape.kernel[1]
             << ", stride " << shape.stride[0] << " " << shape.stride[1] << ", padding "
             << shape.padding[0] << " " << shape.padding[1] << (shape.has_bias ? ", bias" : "");
}

// Windows may leave out pixels, lie on padding alone, and have rest on the right.
Strided draw_strided(std::mt19937& generator) {
  Strided shape{.images = between(generator, 1, 3),
      .inputs = between(generator, 2, 40),
      .outputs = between(generator, 1, 40),
      .size = {},
      .kernel = {},
      .stride = {},
      .padding = {},
      .has_bias = between(generator, 0, 1) == 0};
  for (const std::size_t axis : {0U, 1U}) {
    shape.kernel[axis] = between(generator, 1, 7);
    shape.padding[axis] = between(generator, 0, 4);
    shape.stride[axis] = between(generator, axis == 0 ? 2 : 1, 4);
    // Of two outputs at least.
    const auto least = shape.kernel[axis] + shape.stride[axis] - 2 * shape.padding[axis];
    shape.size[axis] = std::max<std::int64_t>(2, least) + between(generator, 0, 9);
  }
  return shape;
}

/// Images, weight and perhaps bias, which need gradients; images and weight channels-last.
struct StridedOperands {
  std::vector<at::Tensor> all;

  static StridedOperands drawn(const Strided& shape) {
    const auto& [size, kernel] = std::tie(shape.size, shape.kernel);
    StridedOperands result{{conv::drawn({shape.images, shape.inputs, size[0], size[1]}),
        conv::drawn({shape.outputs, shape.inputs, kernel[0], kernel[1]})}};
    if (shape.has_bias) result.all.push_back(at::randn({shape.outputs}));
    return result.as(at::kFloat);
  }

  StridedOperands as(at::ScalarType type) const {
    StridedOperands copy;
    for (const at::Tensor& tensor : all)
      copy.all.push_back(tensor.detach().to(type, false, true).requires_grad_());
    return copy;
  }

  at::Tensor products(const Strided& shape, const linear::GemmKernel& kernel) const {
    static constexpr std::int64_t kOne = 1;
    const ConvolutionCall call{.images = all[0],
        .weight = all[1],
        .bias = all.size() > 2 ? all[2] : at::Tensor(),
        .stride = shape.stride,
        .padding = shape.padding,
        .dilation = kOne,
        .groups = 1};
    EXPECT_EQ(kind_of(call), ConvolutionKind::kStrided);
    return window_conv2d(call, kernel);
  }

  at::Tensor of_libtorch(const Strided& shape) const {
    return at::conv2d(all[0], all[1], all.size() > 2 ? std::optional(all[2]) : std::nullopt,
        shape.stride, shape.padding);
  }
};

void expect_agrees(const Strided& shape, const linear::GemmKernel& kernel) {
  SCOPED_TRACE(::testing::Message() << shape << ", " << kernel.name);
  const auto own = StridedOperands::drawn(shape), exact = own.as(at::kDouble);
  const auto output = own.products(shape, kernel), expected = exact.of_libtorch(shape);
  EXPECT_TRUE(output.is_contiguous(at::MemoryFormat::ChannelsLast));
  expect_same_in_both_passes({output, own.all}, {expected, exact.all});
}

TEST(WindowProducts, AgreeWithDoublePrecisionOnDrawnShapes) {
  torch::manual_seed(7);
  std::mt19937 generator(5);
  for (const linear::GemmKernel* const kernel : linear::gemm_kernels()) {
    for (int round = 0; round < 100 && !::testing::Test::HasFailure(); ++round)
      expect_agrees(draw_strided(generator), *kernel);
  }
}

// A stem; a shortcut; windows of which only those of two images are multiplied at a time, or less
// than those of one.
constexpr Strided kStem{3, 3, 20, {33, 30}, {7, 7}, {2, 2}, {3, 3}, false},
    kShortcut{2, 40, 50, {9, 9}, {1, 1}, {2, 2}, {0, 0}, false},
    kManyImages{5, 64, 10, {46, 50}, {5, 5}, {2, 2}, {2, 2}},
    kLongRows{2, 16, 6, {40, 300}, {9, 9}, {2, 3}, {4, 4}};

TEST(WindowProducts, AgreeOnTheLayersOfNets) {
  torch::manual_seed(6);
  for (const linear::GemmKernel* const kernel : linear::gemm_kernels())
    for (const Strided& shape : {kStem, kShortcut, kManyImages, kLongRows})
      expect_agrees(shape, *kernel);
}

TEST(WindowProducts, HaveTheSameBitsForAnyNumberOfThreads) {
  torch::manual_seed(8);
  const auto own = StridedOperands::drawn(kManyImages);
  const auto before = at::get_num_threads();
  const auto results = [&](int threads) {
    at::set_num_threads(threads);
    const auto output = own.products(kManyImages, *linear::gemm_kernels().back());
    auto all = torch::autograd::grad({output.square().sum()}, {own.all[0], own.all[1]});
    all.push_back(output);
    return all;
  };
  const auto one = results(1), three = results(3);
  at::set_num_threads(before);
  for (std::size_t i = 0; i < one.size(); ++i) EXPECT_TRUE(torch::equal(one[i], three[i])) << i;
}

TEST(WindowProducts, TakeOtherOrdersOfTheWeight) {
  torch::manual_seed(11);
  const auto own = StridedOperands::drawn(kStem);
  auto other = own.as(at::kFloat);
  other.all[1] = own.all[1].detach().contiguous().requires_grad_();
  const auto gradient = [&](const StridedOperands& operands) {
    const auto output = operands.products(kStem, *linear::gemm_kernels().back());
    return torch::autograd::grad({output.square().sum()}, {operands.all[1]})[0];
  };
  EXPECT_TRUE(torch::equal(gradient(own), gradient(other)));
}

TEST(WindowProducts, RefuseABackwardAfterAnyWeightHasChanged) {
  for (const auto format : {at::MemoryFormat::Contiguous, at::MemoryFormat::ChannelsLast}) {
    auto own = StridedOperands::drawn(kStem);
    own.all[1] = own.all[1].detach().contiguous(format).requires_grad_();
    const auto loss = own.products(kStem, *linear::gemm_kernels().back()).sum();
    own.all[1].detach().add_(1);
    EXPECT_THROW(loss.backward(), c10::Error);
  }
}

TEST(WindowProducts, HaveASecondDerivative) {
  torch::manual_seed(9);
  constexpr Strided kFewPixels{2, 7, 9, {6, 5}, {3, 3}, {2, 2}, {1, 1}};
  const auto own = StridedOperands::drawn(kFewPixels), exact = own.as(at::kDouble);
  const auto second = [](const at::Tensor& output, const StridedOperands& operands) {
    const auto first =
        torch::autograd::grad({output.pow(3).sum()}, {operands.all[1]}, {}, true, true);
    return torch::autograd::grad({first[0].square().sum()}, {operands.all[0]})[0];
  };
  const auto result = second(own.products(kFewPixels, *linear::gemm_kernels().back()), own);
  const auto wanted = second(exact.of_libtorch(kFewPixels), exact);
  EXPECT_TRUE(torch::allclose(
      result.to(at::kDouble), wanted, 1e-4, 1e-5 * wanted.abs().max().item<double>()));
}

TEST(WindowProducts, ComputeOnlyTheGradientsThatAreWanted) {
  torch::manual_seed(10);
  const auto gradients = [](bool of_images) {
    const auto own = StridedOperands::drawn(kShortcut);
    own.all[of_images ? 1 : 0].requires_grad_(false);
    own.products(kShortcut, *linear::gemm_kernels().back()).sum().backward();
    return std::pair(own.all[0].grad().defined(), own.all[1].grad().defined());
  };
  EXPECT_EQ(gradients(true), std::pair(true, false));
  EXPECT_EQ(gradients(false), std::pair(false, true));
}

TEST(WindowProducts, AreCalledForAnyModuleWithinAScope) {
  torch::manual_seed(12);
  const auto own = StridedOperands::drawn(kShortcut);
  const auto is_called = [](const StridedOperands& operands, Kernels who) {
    const KernelScope scope(who);
    const std::string maker = operands.of_libtorch(kShortcut).grad_fn()->name();
    return maker.find("WindowConvolution") != std::string::npos;
  };
  EXPECT_TRUE(is_called(own, Kernels::kOwn));
  EXPECT_FALSE(is_called(own, Kernels::kLibTorch));
  EXPECT_FALSE(is_called(own.as(at::kBFloat16), Kernels::kOwn));
  EXPECT_EQ(is_called(own, Kernels::kAuto), faster_kinds().window_products);
}

TEST(WindowProducts, AreForLayersOfManyChannels) {
  const ConvolutionShape wide{
      .images = 16, .inputs = 64, .outputs = 64, .out_height = 8, .out_width = 8};
  EXPECT_TRUE(is_window_product_faster(wide));
  ConvolutionShape stem = wide;
  stem.inputs = 3;
  EXPECT_FALSE(is_window_product_faster(stem));
}

}  // namespace
}  // namespace lockstep::nn::conv
