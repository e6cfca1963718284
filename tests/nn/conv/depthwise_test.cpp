// Depthwise convolutions: what LibTorch computes in double precision, over drawn shapes.

#include "lockstep/nn/conv/depthwise.h"

#include <array>
#include <gtest/gtest.h>
#include <ostream>
#include <vector>

#include "tests/nn/conv/reference.h"
#include <ATen/Parallel.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/types.h>

#include "lockstep/nn/conv/convolution.h"

namespace lockstep::nn::conv {
namespace {

struct Depthwise {
  std::int64_t images, channels;
  std::array<std::int64_t, 2> size, kernel, stride, padding;
};

std::ostream& operator<<(std::ostream& out, const Depthwise& shape) {
  return out << shape.images << "x" << shape.channels << "x" << shape.size[0] << "x"
             << shape.size[1] << " by " << shape.kernel[0] << "x" << shape.kernel[1] << ", stride "
             << shape.stride[0] << " " << shape.stride[1] << ", padding " << shape.padding[0] << " "
             << shape.padding[1];
}

Depthwise draw_depthwise(std::mt19937& generator) {
  Depthwise shape{.images = between(generator, 1, 3),
      .channels = between(generator, 2, 40),
      .size = {},
      .kernel = {},
      .stride = {},
      .padding = {}};
  for (const std::size_t axis : {0U, 1U}) {
    shape.kernel[axis] = between(generator, 1, 8);
    shape.padding[axis] = between(generator, 0, 4);
    shape.stride[axis] = between(generator, 1, 3);
    const auto least = std::max<std::int64_t>(2, shape.kernel[axis] - 2 * shape.padding[axis]);
    shape.size[axis] = between(generator, least, least + 9);
  }
  return shape;
}

/// Images, weight and bias that need gradients; the images channels-last.
struct DepthwiseOperands {
  std::vector<at::Tensor> all;

  static DepthwiseOperands drawn(const Depthwise& shape) {
    const auto& [size, kernel] = std::tie(shape.size, shape.kernel);
    return DepthwiseOperands{
        {conv::drawn({shape.images, shape.channels, size[0], size[1]}),
            at::randn({shape.channels, 1, kernel[0], kernel[1]}), at::randn({shape.channels})}}
        .as(at::kFloat);
  }

  DepthwiseOperands as(at::ScalarType type) const {
    DepthwiseOperands copy;
    for (const at::Tensor& tensor : all)
      copy.all.push_back(tensor.detach().to(type, false, true).requires_grad_());
    return copy;
  }
};

constexpr std::int64_t kUnit = 1;

ConvolutionCall depthwise_call(const DepthwiseOperands& operands, const Depthwise& shape) {
  return {.images = operands.all[0],
      .weight = operands.all[1],
      .bias = operands.all[2],
      .stride = shape.stride,
      .padding = shape.padding,
      .dilation = kUnit,
      .groups = shape.channels};
}

at::Tensor exact_conv2d(const DepthwiseOperands& operands, const Depthwise& shape) {
  return at::conv2d(operands.all[0], operands.all[1], operands.all[2], shape.stride, shape.padding,
      kUnit, shape.channels);
}

void expect_agrees(const Depthwise& shape, const DepthwiseKernel& kernel, DepthwisePart part) {
  SCOPED_TRACE(
      ::testing::Message() << shape << ", " << kernel.name << ", part " << static_cast<int>(part));
  const auto own = DepthwiseOperands::drawn(shape), exact = own.as(at::kDouble);
  const auto call = depthwise_call(own, shape);
  ASSERT_EQ(kind_of(call), ConvolutionKind::kDepthwise);
  const auto output = depthwise_conv2d(call, kernel, part), expected = exact_conv2d(exact, shape);
  expect_same_in_both_passes({output, own.all}, {expected, exact.all});
}

TEST(Depthwise, AgreesWithDoublePrecisionOnDrawnShapes) {
  torch::manual_seed(7);
  std::mt19937 generator(5);
  for (const DepthwiseKernel* const kernel : depthwise_kernels()) {
    for (const DepthwisePart part : {DepthwisePart::kGradients, DepthwisePart::kAll})
      for (int round = 0; round < 60 && !::testing::Test::HasFailure(); ++round)
        expect_agrees(draw_depthwise(generator), *kernel, part);
  }
}

// Rows of pixels that are shorter than a kernel, longer than a block of outputs, and padded by all
// of a kernel.
TEST(Depthwise, HasLoopsForTheUsualKernels) {
  torch::manual_seed(6);
  for (const DepthwiseKernel* const kernel : depthwise_kernels())
    for (const std::int64_t size : {3, 5, 7})
      for (const std::int64_t stride : {1, 2})
        for (const std::int64_t width : {2, 4, 11})
          expect_agrees(
              {2, 37, {5, width}, {size, size}, {stride, stride}, {size - 1, size / 2 + 1}},
              *kernel, DepthwisePart::kAll);
}

constexpr Depthwise kWide{2, 37, {9, 8}, {5, 5}, {2, 1}, {2, 2}};

TEST(Depthwise, HasTheSameBitsForAnyNumberOfThreads) {
  torch::manual_seed(8);
  const auto own = DepthwiseOperands::drawn(kWide);
  const auto gradients = [&](int threads) {
    at::set_num_threads(threads);
    const auto output = depthwise_conv2d(
        depthwise_call(own, kWide), *depthwise_kernels().back(), DepthwisePart::kAll);
    return torch::autograd::grad({output.square().sum()}, own.all);
  };
  const auto one = gradients(1), three = gradients(3);
  at::set_num_threads(1);
  for (std::size_t i = 0; i < 2; ++i) EXPECT_TRUE(torch::equal(one[i], three[i])) << i;
}

TEST(Depthwise, HasASecondDerivative) {
  torch::manual_seed(9);
  const auto own = DepthwiseOperands::drawn(kWide), exact = own.as(at::kDouble);
  const auto second = [](const at::Tensor& output, const DepthwiseOperands& operands) {
    const auto first =
        torch::autograd::grad({output.pow(3).sum()}, {operands.all[1]}, {}, true, true);
    return torch::autograd::grad({first[0].square().sum()}, {operands.all[0]})[0];
  };
  const auto result = second(depthwise_conv2d(depthwise_call(own, kWide),
                                 *depthwise_kernels().back(), DepthwisePart::kAll),
      own);
  const auto wanted = second(exact_conv2d(exact, kWide), exact);
  EXPECT_TRUE(torch::allclose(
      result.to(at::kDouble), wanted, 1e-4, 1e-5 * wanted.abs().max().item<double>()));
}

TEST(Depthwise, IsLibTorchsForOtherGroupsTypesAndOrders) {
  const auto own = DepthwiseOperands::drawn(kWide);
  const auto kind = [&](const at::Tensor& images, const at::Tensor& weight, std::int64_t groups,
                        std::int64_t dilation) {
    return kind_of({.images = images,
        .weight = weight,
        .bias = {},
        .stride = kUnit,
        .padding = kWide.padding,
        .dilation = dilation,
        .groups = groups});
  };
  const at::Tensor &images = own.all[0], &weight = own.all[1];
  EXPECT_EQ(kind(images, weight, 37, 1), ConvolutionKind::kDepthwise);
  EXPECT_EQ(kind(images, weight, 37, 2), ConvolutionKind::kOther) << "dilation";
  EXPECT_EQ(kind(images.contiguous(), weight, 37, 1), ConvolutionKind::kOther) << "order";
  EXPECT_EQ(
      kind(images.to(at::kBFloat16), weight.to(at::kBFloat16), 37, 1), ConvolutionKind::kOther)
      << "type";
  EXPECT_EQ(kind(images, at::randn({74, 1, 5, 5}), 37, 1), ConvolutionKind::kOther)
      << "two outputs a channel";
  EXPECT_EQ(kind(drawn({1, 4, 6, 6}), at::randn({4, 2, 3, 3}), 2, 1), ConvolutionKind::kOther)
      << "groups of two";
}

}  // namespace
}  // namespace lockstep::nn::conv
