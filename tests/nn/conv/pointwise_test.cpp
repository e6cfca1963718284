// 1x1 convolutions as products: what LibTorch computes in double precision, over drawn shapes.

#include "lockstep/nn/conv/pointwise.h"

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

struct PointwiseShape {
  std::int64_t images, inputs, outputs, height, width;
  bool has_bias = true;
};

std::ostream& operator<<(std::ostream& out, const PointwiseShape& shape) {
  return out << shape.images << "x" << shape.inputs << "x" << shape.height << "x" << shape.width
             << " to " << shape.outputs << (shape.has_bias ? ", bias" : "");
}

/// Images, weight and perhaps bias, which need gradients.
struct PointwiseOperands {
  std::vector<at::Tensor> all;

  static PointwiseOperands drawn(const PointwiseShape& shape) {
    PointwiseOperands result{{conv::drawn({shape.images, shape.inputs, shape.height, shape.width}),
        at::randn({shape.outputs, shape.inputs, 1, 1})}};
    if (shape.has_bias) result.all.push_back(at::randn({shape.outputs}));
    return result.as(at::kFloat);
  }

  PointwiseOperands as(at::ScalarType type) const {
    PointwiseOperands copy;
    for (const at::Tensor& tensor : all)
      copy.all.push_back(tensor.detach().to(type, false, true).requires_grad_());
    return copy;
  }

  at::Tensor product(const linear::GemmKernel& kernel) const {
    static constexpr std::int64_t kOne = 1, kZero = 0;
    const ConvolutionCall call{.images = all[0],
        .weight = all[1],
        .bias = all.size() > 2 ? all[2] : at::Tensor(),
        .stride = kOne,
        .padding = kZero,
        .dilation = kOne,
        .groups = 1};
    EXPECT_EQ(kind_of(call), ConvolutionKind::kPointwise);
    return product_conv2d(call, kernel);
  }

  at::Tensor of_libtorch() const {
    return at::conv2d(all[0], all[1], all.size() > 2 ? std::optional(all[2]) : std::nullopt);
  }
};

void expect_agrees(const PointwiseShape& shape, const linear::GemmKernel& kernel) {
  SCOPED_TRACE(::testing::Message() << shape << ", " << kernel.name);
  const auto own = PointwiseOperands::drawn(shape), exact = own.as(at::kDouble);
  const auto output = own.product(kernel), expected = exact.of_libtorch();
  EXPECT_TRUE(output.is_contiguous(at::MemoryFormat::ChannelsLast));
  expect_same_in_both_passes({output, own.all}, {expected, exact.all});
}

TEST(PointwiseProduct, AgreesWithDoublePrecisionOnDrawnShapes) {
  torch::manual_seed(7);
  std::mt19937 generator(5);
  for (const linear::GemmKernel* const kernel : linear::gemm_kernels()) {
    for (int round = 0; round < 60 && !::testing::Test::HasFailure(); ++round)
      expect_agrees({.images = between(generator, 1, 5),
                        .inputs = between(generator, 2, 70),
                        .outputs = between(generator, 1, 70),
                        .height = between(generator, 2, 9),
                        .width = between(generator, 1, 9),
                        .has_bias = round % 2 == 0},
          *kernel);
  }
}

// The gradient of the taps is then a sum of parts.
TEST(PointwiseProduct, AgreesOnManyPixels) {
  torch::manual_seed(6);
  for (const linear::GemmKernel* const kernel : linear::gemm_kernels())
    for (const std::int64_t inputs : {5, 37})
      expect_agrees(
          {.images = 3, .inputs = inputs, .outputs = 11, .height = 41, .width = 53}, *kernel);
}

TEST(PointwiseProduct, HasTheSameBitsForAnyNumberOfThreads) {
  torch::manual_seed(8);
  const auto own = PointwiseOperands::drawn({3, 48, 130, 42, 50});
  const auto before = at::get_num_threads();
  const auto gradients = [&](int threads) {
    at::set_num_threads(threads);
    const auto output = own.product(*linear::gemm_kernels().back());
    return torch::autograd::grad({output.square().sum()}, own.all);
  };
  const auto one = gradients(1), three = gradients(3);
  at::set_num_threads(before);
  for (std::size_t i = 0; i < 2; ++i) EXPECT_TRUE(torch::equal(one[i], three[i])) << i;
}

TEST(PointwiseProduct, HasASecondDerivative) {
  torch::manual_seed(9);
  const auto own = PointwiseOperands::drawn({2, 7, 9, 4, 5}), exact = own.as(at::kDouble);
  const auto second = [](const at::Tensor& output, const PointwiseOperands& operands) {
    const auto first =
        torch::autograd::grad({output.pow(3).sum()}, {operands.all[1]}, {}, true, true);
    return torch::autograd::grad({first[0].square().sum()}, {operands.all[0]})[0];
  };
  const auto result = second(own.product(*linear::gemm_kernels().back()), own);
  const auto wanted = second(exact.of_libtorch(), exact);
  EXPECT_TRUE(torch::allclose(
      result.to(at::kDouble), wanted, 1e-4, 1e-5 * wanted.abs().max().item<double>()));
}

TEST(PointwiseProduct, GivesTheWeightsGradientAlone) {
  const auto own = PointwiseOperands::drawn({2, 8, 8, 4, 4});
  own.all[0].requires_grad_(false);
  const auto found =
      torch::autograd::grad({own.product(*linear::gemm_kernels().back()).sum()}, {own.all[1]});
  EXPECT_TRUE(found[0].flatten(1).allclose(
      own.all[0].detach().sum({0, 2, 3}).unsqueeze(0).expand({8, 8}), 1e-4, 1e-4));
}

TEST(PointwiseProduct, IsCalledForAnyModuleWhereItIsFaster) {
  const auto own = PointwiseOperands::drawn({2, 40, 50, 4, 5});
  const auto is_called = [&](Kernels who) {
    const KernelScope scope(who);
    const std::string maker = own.of_libtorch().grad_fn()->name();
    return maker.find("ProductConvolution") != std::string::npos;
  };
  EXPECT_TRUE(is_called(Kernels::kOwn));
  EXPECT_FALSE(is_called(Kernels::kLibTorch));
  EXPECT_EQ(is_called(Kernels::kAuto), faster_kinds().products);
}

TEST(PointwiseProduct, IsForLayersOfManyChannels) {
  const ConvolutionShape wide{
      .images = 16, .inputs = 64, .outputs = 64, .out_height = 8, .out_width = 8};
  EXPECT_TRUE(is_product_faster(wide));
  ConvolutionShape narrow = wide;
  narrow.outputs = 15;
  EXPECT_FALSE(is_product_faster(narrow));
}

}  // namespace
}  // namespace lockstep::nn::conv
