// Convolutions to a single pixel: what LibTorch computes in double precision, over drawn shapes.

#include <algorithm>
#include <array>
#include <gtest/gtest.h>
#include <ostream>
#include <tuple>
#include <vector>

#include "tests/nn/conv/reference.h"
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/function.h>
#include <torch/types.h>

#include "lockstep/nn/conv/convolution.h"

namespace lockstep::nn::conv {
namespace {

struct PixelShape {
  std::int64_t images, inputs, outputs;
  std::array<std::int64_t, 2> size, kernel, stride, padding;
};

std::ostream& operator<<(std::ostream& out, const PixelShape& shape) {
  return out << shape.images << "x" << shape.inputs << "x" << shape.size[0] << "x" << shape.size[1]
             << " to " << shape.outputs << " by " << shape.kernel[0] << "x" << shape.kernel[1]
             << ", stride " << shape.stride[0] << " " << shape.stride[1] << ", padding "
             << shape.padding[0] << " " << shape.padding[1];
}

// One axis of a convolution to one pixel: the kernel fits once into the padded image. Of 1x1
// kernels on single pixels no order can be told.
void draw_axis(std::mt19937& generator, PixelShape& shape, std::size_t axis) {
  const auto kernel = between(generator, axis == 0 ? 2 : 1, 7),
             padding = between(generator, 0, kernel - 1);
  const auto least = std::max<std::int64_t>(1, kernel - 2 * padding),
             stride = between(generator, 1, 4);
  shape.kernel[axis] = kernel;
  shape.padding[axis] = padding;
  // One pixel wider than the kernel for each further step that the stride leaves out.
  shape.size[axis] = std::max(least, kernel - 2 * padding + between(generator, 0, stride - 1));
  const auto beyond = shape.size[axis] + 2 * padding - kernel;
  shape.stride[axis] = std::max(stride, beyond + 1);
}

PixelShape draw(std::mt19937& generator) {
  PixelShape shape{.images = between(generator, 1, 5),
      .inputs = between(generator, 2, 20),
      .outputs = between(generator, 1, 20),
      .size = {},
      .kernel = {},
      .stride = {},
      .padding = {}};
  draw_axis(generator, shape, 0);
  draw_axis(generator, shape, 1);
  return shape;
}

/// Images, weight and bias of a convolution that need gradients; channels-last.
struct Operands {
  at::Tensor images, weight, bias;

  static Operands drawn(const PixelShape& shape) {
    const auto& [size, kernel] = std::tie(shape.size, shape.kernel);
    return Operands{at::randn({shape.images, shape.inputs, size[0], size[1]}),
        at::randn({shape.outputs, shape.inputs, kernel[0], kernel[1]}), at::randn({shape.outputs})}
        .as(at::kFloat);
  }

  Operands as(at::ScalarType type) const {
    const auto copied = [=](const at::Tensor& tensor) {
      const auto copy = tensor.detach().to(type, false, true);
      return tensor.dim() == 4 ? copy.contiguous(at::MemoryFormat::ChannelsLast) : copy;
    };
    return {copied(images).requires_grad_(), copied(weight).requires_grad_(),
        copied(bias).requires_grad_()};
  }

  std::vector<at::Tensor> all() const { return {images, weight, bias}; }
};

ConvolutionCall call_of(const Operands& operands, const PixelShape& shape) {
  static const std::int64_t kOne = 1;
  return {.images = operands.images,
      .weight = operands.weight,
      .bias = operands.bias,
      .stride = shape.stride,
      .padding = shape.padding,
      .dilation = kOne,
      .groups = 1};
}

at::Tensor exact_conv2d(const Operands& operands, const PixelShape& shape) {
  return at::conv2d(operands.images, operands.weight, operands.bias, shape.stride, shape.padding);
}

bool is_to_single_pixel(const ConvolutionCall& call) {
  return kind_of(call) == ConvolutionKind::kSinglePixel;
}

void expect_near(const at::Tensor& result, const at::Tensor& exact, double tolerance) {
  ASSERT_EQ(result.sizes(), exact.sizes());
  const double scale = std::max(1.0, exact.abs().max().item<double>());
  EXPECT_LE((result.to(at::kDouble) - exact).abs().max().item<double>(), tolerance * scale);
}

void expect_agrees(const PixelShape& shape, at::ScalarType type, double tolerance) {
  SCOPED_TRACE(::testing::Message() << shape << ", " << type);
  const auto own = Operands::drawn(shape).as(type), exact = own.as(at::kDouble);
  const auto call = call_of(own, shape);
  ASSERT_TRUE(is_to_single_pixel(call));
  const auto output = single_pixel_conv2d(call), expected = exact_conv2d(exact, shape);
  EXPECT_EQ(output.scalar_type(), type);
  EXPECT_EQ(output.suggest_memory_format(), exact_conv2d(own, shape).suggest_memory_format());
  expect_near(output, expected, tolerance);
  const auto gradient = at::randn(output.sizes()).to(type);
  const auto results = torch::autograd::grad({output}, own.all(), {gradient});
  const auto wanted = torch::autograd::grad({expected}, exact.all(), {gradient.to(at::kDouble)});
  for (std::size_t index = 0; index < wanted.size(); ++index)
    expect_near(results[index], wanted[index], tolerance);
}

TEST(SinglePixel, AgreesWithDoublePrecisionOnDrawnShapes) {
  torch::manual_seed(7);
  std::mt19937 generator(5);
  for (int round = 0; round < 2000 && !::testing::Test::HasFailure(); ++round)
    expect_agrees(draw(generator), at::kFloat, 2e-6);
}

TEST(SinglePixel, AgreesInBf16) {
  torch::manual_seed(8);
  std::mt19937 generator(5);
  for (int round = 0; round < 200 && !::testing::Test::HasFailure(); ++round)
    expect_agrees(draw(generator), at::kBFloat16, 0.008);
}

// The last layers of ResNet18 on 32x32.
constexpr PixelShape kMiddleTap{3, 24, 16, {1, 1}, {3, 3}, {1, 1}, {1, 1}};
constexpr PixelShape kFourTaps{3, 24, 16, {2, 2}, {3, 3}, {2, 2}, {1, 1}};

TEST(SinglePixel, GivesZeroToTapsThatMeetPadding) {
  torch::manual_seed(9);
  const auto own = Operands::drawn(kMiddleTap);
  const auto output = single_pixel_conv2d(call_of(own, kMiddleTap));
  auto weight = torch::autograd::grad({output.sum()}, {own.weight})[0];
  EXPECT_TRUE(weight.is_contiguous(at::MemoryFormat::ChannelsLast));
  EXPECT_GT(weight.select(3, 1).select(2, 1).abs().min().item<float>(), 0);
  weight.select(3, 1).select(2, 1).zero_();
  EXPECT_EQ(weight.abs().max().item<float>(), 0);
}

TEST(SinglePixel, HasASecondDerivative) {
  torch::manual_seed(10);
  const auto second = [](const at::Tensor& output, const Operands& operands) {
    const auto first = torch::autograd::grad(
        {output.pow(3).sum()}, {operands.images, operands.weight}, {}, true, true);
    return torch::autograd::grad(
        {first[0].square().sum() + first[1].square().sum()}, {operands.images, operands.weight});
  };
  const auto own = Operands::drawn(kFourTaps), exact = own.as(at::kDouble);
  const auto results = second(single_pixel_conv2d(call_of(own, kFourTaps)), own);
  const auto wanted = second(exact_conv2d(exact, kFourTaps), exact);
  for (std::size_t index = 0; index < wanted.size(); ++index)
    expect_near(results[index], wanted[index], 1e-5);
}

TEST(SinglePixel, TakesThePlaceOfLibTorchsInAScope) {
  const auto operands = Operands::drawn(kFourTaps);
  const auto is_product = [&] {
    const auto output = exact_conv2d(operands, kFourTaps);
    return output.grad_fn()->name().find("Convolution") == std::string::npos;
  };
  EXPECT_FALSE(is_product());
  const KernelScope scope(Kernels::kAuto);
  EXPECT_TRUE(is_product());
}

TEST(SinglePixel, LeavesTheRestToOthers) {
  const auto of = [](PixelShape shape, at::IntArrayRef dilation, std::int64_t groups) {
    const auto operands = Operands::drawn(shape);
    auto call = call_of(operands, shape);
    call.dilation = dilation;
    call.groups = groups;
    return is_to_single_pixel(call);
  };
  EXPECT_TRUE(of(kFourTaps, {1}, 1));
  EXPECT_FALSE(of({3, 24, 16, {3, 2}, {3, 3}, {2, 2}, {1, 1}}, {1}, 1)) << "two pixels";
  EXPECT_FALSE(of({3, 24, 16, {1, 1}, {1, 1}, {4, 4}, {1, 1}}, {1}, 1)) << "only padding";
  EXPECT_FALSE(of(kFourTaps, {2}, 1)) << "dilation";
  EXPECT_FALSE(of(kFourTaps, {1}, 2)) << "groups";
  EXPECT_FALSE(of({0, 24, 16, {1, 1}, {3, 3}, {1, 1}, {1, 1}}, {1}, 1)) << "no image";
  const auto operands = Operands::drawn(kFourTaps);
  const auto contiguous = Operands{operands.images.contiguous(), operands.weight.contiguous(), {}};
  EXPECT_FALSE(is_to_single_pixel(call_of(contiguous, kFourTaps))) << "another order";
  EXPECT_FALSE(is_to_single_pixel(call_of(operands.as(at::kDouble), kFourTaps))) << "double";
}

}  // namespace
}  // namespace lockstep::nn::conv
