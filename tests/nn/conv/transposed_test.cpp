// Transposed convolutions to tiles: what LibTorch computes in double precision.

#include "lockstep/nn/conv/transposed.h"

#include <gtest/gtest.h>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "tests/nn/conv/reference.h"
#include <ATen/Parallel.h>
#include <ATen/ops/conv_transpose2d.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/function.h>
#include <torch/types.h>

#include "lockstep/nn/kernels.h"
#include "lockstep/nn/linear/linear.h"

namespace lockstep::nn::conv {
namespace {

using Tensors = std::vector<at::Tensor>;

/// Images, weight and perhaps bias.
Tensors tile_operands(std::int64_t images, std::int64_t inputs, std::int64_t outputs,
    std::int64_t tile, bool has_bias) {
  Tensors all{drawn({images, inputs, 5, 4}), at::randn({inputs, outputs, tile, tile})};
  if (has_bias) all.push_back(at::randn({outputs}));
  for (at::Tensor& tensor : all) tensor.requires_grad_();
  return all;
}

Tensors tile_operands_as(const Tensors& operands, at::ScalarType type) {
  Tensors copies;
  for (const at::Tensor& tensor : operands)
    copies.push_back(tensor.detach().to(type, false, true).requires_grad_());
  return copies;
}

at::Tensor transposed(const Tensors& operands) {
  const auto bias = operands.size() > 2 ? std::optional(operands[2]) : std::nullopt;
  return at::conv_transpose2d(operands[0], operands[1], bias, operands[1].size(2));
}

/// The gradients of the operands, and the output.
Tensors with_gradients(const Tensors& operands, const at::Tensor& gradient) {
  const auto output = transposed(operands);
  auto results = torch::autograd::grad({output}, operands, {gradient.to(output.scalar_type())});
  results.push_back(output.detach());
  return results;
}

bool is_of_product(const at::Tensor& output) {
  return output.grad_fn()->name().find("Permute") != std::string::npos;
}

TEST(TransposedConvolution, AgreesWithDoublePrecisionWherePixelsBecomeTiles) {
  torch::manual_seed(3);
  std::mt19937 generator(4);
  const KernelScope scope(Kernels::kOwn);
  for (int round = 0; round < 20; ++round) {
    const auto tile = between(generator, 1, 4), outputs = between(generator, 1, 9);
    const auto own = tile_operands(between(generator, 1, 3), between(generator, 2, 20), outputs,
        tile, between(generator, 0, 1) == 1);
    ASSERT_TRUE(is_of_product(transposed(own)));
    const auto gradient = drawn({own[0].size(0), outputs, 5 * tile, 4 * tile});
    expect_each_close(with_gradients(own, gradient),
        with_gradients(tile_operands_as(own, at::kDouble), gradient));
  }
}

TEST(TransposedConvolution, IsChannelsLastAndHasTheSameBitsForAnyNumberOfThreads) {
  torch::manual_seed(5);
  const KernelScope scope(Kernels::kOwn);
  const auto own = tile_operands(3, 40, 48, 2, true);
  EXPECT_TRUE(transposed(own).is_contiguous(at::MemoryFormat::ChannelsLast));
  const auto gradient = drawn({3, 48, 10, 8});
  const auto before = at::get_num_threads();
  at::set_num_threads(1);
  const auto alone = with_gradients(own, gradient);
  at::set_num_threads(3);
  const auto shared = with_gradients(own, gradient);
  at::set_num_threads(before);
  for (std::size_t i = 0; i < alone.size(); ++i) EXPECT_TRUE(at::equal(alone[i], shared[i])) << i;
}

TEST(TransposedConvolution, OtherFormsAreLibTorchs) {
  const auto images = drawn({2, 6, 5, 4}), weight = at::randn({6, 3, 2, 2});
  const std::vector<std::int64_t> none{0, 0}, one{1, 1}, two{2, 2};
  const auto is_made = [&](const at::Tensor& of, at::IntArrayRef stride, at::IntArrayRef padding,
                           at::IntArrayRef dilation, std::int64_t groups = 1) {
    return makes_tiles({.images = of,
        .weight = weight,
        .bias = std::nullopt,
        .stride = stride,
        .padding = padding,
        .output_padding = none,
        .groups = groups,
        .dilation = dilation});
  };
  EXPECT_TRUE(is_made(images, two, none, one));
  EXPECT_FALSE(is_made(images, one, none, one)) << "tiles overlap";
  EXPECT_FALSE(is_made(images, two, one, one));
  EXPECT_FALSE(is_made(images, two, none, two));
  EXPECT_FALSE(is_made(images, two, none, one, 2));
  EXPECT_FALSE(is_made(images.contiguous(), two, none, one));
  EXPECT_FALSE(is_made(at::randn({2, 6, 1, 1}), two, none, one)) << "LibTorch's is contiguous";
  EXPECT_FALSE(is_made(images.to(at::kDouble), two, none, one));
  EXPECT_FALSE(is_made(images[0], two, none, one));
  EXPECT_FALSE(is_made(drawn({2, 7, 5, 4}), two, none, one)) << "LibTorch says what is wrong";
}

TEST(TransposedConvolution, IsAProductWhereProductsAreFaster) {
  const auto own = tile_operands(2, 6, 3, 2, true);
  const auto is_own = [&](Kernels who) {
    const KernelScope scope(who);
    return is_of_product(transposed(own));
  };
  EXPECT_TRUE(is_own(Kernels::kOwn));
  EXPECT_FALSE(is_own(Kernels::kLibTorch));
  EXPECT_EQ(is_own(Kernels::kAuto), linear::are_products_faster());
}

}  // namespace
}  // namespace lockstep::nn::conv
