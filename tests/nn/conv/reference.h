#pragma once

#include <algorithm>
#include <cstddef>
#include <gtest/gtest.h>
#include <random>
#include <vector>

#include <ATen/ops/conv2d.h>
#include <ATen/ops/convolution_backward.h>
#include <ATen/ops/randn.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/types.h>

namespace lockstep::nn::conv {

/// Draws a tensor that is channels-last.
inline at::Tensor drawn(at::IntArrayRef sizes) {
  return at::randn(sizes).contiguous(at::MemoryFormat::ChannelsLast);
}

inline std::int64_t between(std::mt19937& generator, std::int64_t least, std::int64_t most) {
  return std::uniform_int_distribution<std::int64_t>(least, most)(generator);
}

/// A 3x3 convolution of stride 1.
struct TestShape {
  std::int64_t images, inputs, outputs, height, width, padding;

  std::int64_t out_height() const { return height + 2 * padding - 2; }
  std::int64_t out_width() const { return width + 2 * padding - 2; }
};

inline std::ostream& operator<<(std::ostream& out, const TestShape& shape) {
  return out << shape.images << "x" << shape.inputs << "x" << shape.height << "x" << shape.width
             << " to " << shape.outputs << ", padding " << shape.padding;
}

/// The input of a convolution and its backward pass; channels-last.
struct Given {
  at::Tensor images, weight, bias, gradient;

  explicit Given(const TestShape& shape)
      : images(drawn({shape.images, shape.inputs, shape.height, shape.width})),
        weight(drawn({shape.outputs, shape.inputs, 3, 3})),
        bias(at::randn({shape.outputs})),
        gradient(drawn({shape.images, shape.outputs, shape.out_height(), shape.out_width()})) {}
};

/// The results of a convolution and its backward pass.
struct Outcome {
  at::Tensor output, images, weight;
};

/// Computes in fp64, by LibTorch; of the absolute values, if they are wanted.
inline Outcome reference(const Given& given, std::int64_t padding, bool is_absolute = false) {
  const auto exact = [&](const at::Tensor& tensor) {
    const auto wide = tensor.to(at::kDouble);
    return is_absolute ? wide.abs() : wide;
  };
  const auto images = exact(given.images), weight = exact(given.weight);
  auto [images_gradient, weight_gradient, bias_gradient] =
      at::convolution_backward(exact(given.gradient), images, weight, c10::nullopt, {1, 1},
          {padding, padding}, {1, 1}, false, {0, 0}, 1, {true, true, false});
  return {
      at::conv2d(images, weight, exact(given.bias), 1, padding), images_gradient, weight_gradient};
}

/// Expects |result - exact| <= tolerance * the largest sum of |x| |w| of any element.
///
/// Within a tile, Winograd's form adds and subtracts what other elements of the tile are made of,
/// so the largest sum bounds the error, not the element's own.
inline void expect_close(const at::Tensor& result, const at::Tensor& exact,
    const at::Tensor& absolute, double tolerance, const char* what) {
  ASSERT_EQ(result.sizes(), exact.sizes()) << what;
  if (exact.numel() == 0) return;
  const double error = (result.to(at::kDouble) - exact).abs().max().item<double>();
  EXPECT_LE(error, tolerance * absolute.max().item<double>()) << what;
}

/// Tolerances of expect_close(): a float has 2^-24. Measured over the drawn shapes of the tests:
/// at most half of these.
constexpr double kLargeTileTolerance = 7e-6;
constexpr double kSmallTileTolerance = 1e-6;

inline double tolerance_of(std::int64_t tile) {
  return tile == 2 ? kSmallTileTolerance : kLargeTileTolerance;
}

/// Expects each result within 2e-6 of the largest value that is wanted of it, or of 1.
inline void expect_each_close(
    const std::vector<at::Tensor>& results, const std::vector<at::Tensor>& wanted) {
  ASSERT_EQ(results.size(), wanted.size());
  for (std::size_t i = 0; i < wanted.size(); ++i) {
    ASSERT_EQ(results[i].sizes(), wanted[i].sizes());
    const double scale = std::max(1.0, wanted[i].abs().max().item<double>());
    EXPECT_LE((results[i].to(at::kDouble) - wanted[i]).abs().max().item<double>(), 2e-6 * scale)
        << "result " << i;
  }
}

/// A result that has a graph, and what it was computed from.
struct Computed {
  at::Tensor output;
  std::vector<at::Tensor> inputs;
};

/// Compares outputs, and the gradients of one drawn gradient; `exact` in double precision.
inline void expect_same_in_both_passes(const Computed& own, const Computed& exact) {
  const auto gradient = at::randn(own.output.sizes());
  auto results = torch::autograd::grad({own.output}, own.inputs, {gradient});
  auto wanted = torch::autograd::grad({exact.output}, exact.inputs, {gradient.to(at::kDouble)});
  results.push_back(own.output);
  wanted.push_back(exact.output);
  expect_each_close(results, wanted);
}

}  // namespace lockstep::nn::conv
