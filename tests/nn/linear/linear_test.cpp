// Linear layers: what LibTorch computes in double precision, over drawn shapes.

#include "lockstep/nn/linear/linear.h"

#include <gtest/gtest.h>
#include <limits>
#include <ostream>
#include <random>
#include <vector>

#include "tests/nn/conv/reference.h"
#include <ATen/Parallel.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/function.h>
#include <torch/nn/modules/linear.h>
#include <torch/types.h>

#include "lockstep/device/gradient_places.h"
#include "lockstep/nn/kernels.h"

namespace lockstep::nn::linear {
namespace {

using conv::between;

struct Layer {
  std::vector<std::int64_t> sizes;  // of the input, but for its features
  std::int64_t inputs, outputs;
  bool has_bias = true, is_transposed = false;
};

std::ostream& operator<<(std::ostream& out, const Layer& layer) {
  return out << at::IntArrayRef(layer.sizes) << " x " << layer.inputs << " -> " << layer.outputs
             << (layer.has_bias ? ", bias" : "") << (layer.is_transposed ? ", transposed" : "");
}

/// Input, weight and perhaps bias, which need gradients.
struct Operands {
  std::vector<at::Tensor> all;

  static Operands drawn(const Layer& layer) {
    auto sizes = layer.sizes;
    sizes.push_back(layer.inputs);
    Operands drawn{{at::randn(sizes), at::randn({layer.outputs, layer.inputs})}};
    if (layer.is_transposed) drawn.all[1] = at::randn({layer.inputs, layer.outputs}).t();
    if (layer.has_bias) drawn.all.push_back(at::randn({layer.outputs}));
    return drawn.as(at::kFloat);
  }

  Operands as(at::ScalarType type) const {
    Operands copy;
    for (const at::Tensor& tensor : all)
      copy.all.push_back(tensor.detach().to(type, false, true).requires_grad_());
    return copy;
  }

  LinearCall call() const {
    return {.input = all[0], .weight = all[1], .bias = all.size() > 2 ? all[2] : at::Tensor()};
  }

  at::Tensor of_libtorch() const {
    return at::linear(all[0], all[1], all.size() > 2 ? std::optional(all[2]) : std::nullopt);
  }
};

using Values = std::vector<at::Tensor>;

/// The gradients of the operands, and the output.
Values results_of(const Operands& operands, const at::Tensor& output, const at::Tensor& gradient) {
  auto results = torch::autograd::grad({output}, operands.all, {gradient});
  results.push_back(output.detach());
  return results;
}

// A sum's error grows with the square root of its length.
void expect_close(const Values& results, const Values& wanted) {
  for (std::size_t i = 0; i < wanted.size(); ++i) {
    ASSERT_EQ(results[i].sizes(), wanted[i].sizes());
    const double scale = std::max(1.0, wanted[i].abs().max().item<double>());
    EXPECT_LE((results[i].to(at::kDouble) - wanted[i]).abs().max().item<double>(), 2e-6 * scale)
        << "result " << i;
  }
}

void expect_agrees(const Layer& layer, const GemmKernel& kernel) {
  SCOPED_TRACE(::testing::Message() << layer << ", " << kernel.name);
  const auto own = Operands::drawn(layer), exact = own.as(at::kDouble);
  ASSERT_TRUE(is_linear_own(own.call()));
  const auto output = own_linear(kernel, own.call());
  const auto gradient = at::randn(output.sizes());
  expect_close(results_of(own, output, gradient),
      results_of(exact, exact.of_libtorch(), gradient.to(at::kDouble)));
}

// Strips, panels and vectors that are not full; depths beyond one panel.
TEST(Linear, AgreesWithDoublePrecisionOnDrawnShapes) {
  torch::manual_seed(7);
  std::mt19937 generator(5);
  for (const GemmKernel* const kernel : gemm_kernels()) {
    for (int round = 0; round < 60 && !::testing::Test::HasFailure(); ++round) {
      expect_agrees({.sizes = {between(generator, 1, 4), between(generator, 1, 30)},
                        .inputs = between(generator, 1, round % 10 == 0 ? 1500 : 70),
                        .outputs = between(generator, 1, 80),
                        .has_bias = between(generator, 0, 1) == 1,
                        .is_transposed = between(generator, 0, 1) == 1},
          *kernel);
    }
  }
}

// Rows a multiple of half a page apart are copied; more rows than one part has.
TEST(Linear, AgreesOnWideRowsAndManyOfThem) {
  torch::manual_seed(9);
  for (const GemmKernel* const kernel : gemm_kernels()) {
    expect_agrees({.sizes = {29}, .inputs = 1024, .outputs = 40}, *kernel);
    expect_agrees({.sizes = {1100}, .inputs = 512, .outputs = 33}, *kernel);
  }
}

constexpr std::int64_t kWide = 70, kLong = 600;

TEST(Linear, HasTheSameBitsForAnyNumberOfThreads) {
  torch::manual_seed(8);
  const auto own = Operands::drawn({.sizes = {kLong}, .inputs = kLong, .outputs = kWide});
  const auto before = at::get_num_threads();
  const auto some = at::randn({kLong, kWide});
  for (const auto& gradient : {some, some.relu()}) {
    const auto results = [&](int threads) {
      at::set_num_threads(threads);
      return results_of(own, own_linear(*gemm_kernels().back(), own.call()), gradient);
    };
    const auto alone = results(1), shared = results(2);
    for (std::size_t i = 0; i < alone.size(); ++i)
      EXPECT_TRUE(at::equal(alone[i], shared[i])) << "result " << i;
  }
  at::set_num_threads(before);
}

// A row's output does not depend on how many there are.
TEST(Linear, HasTheSameBitsForAPartOfTheRows) {
  torch::manual_seed(8);
  const auto own = Operands::drawn({.sizes = {kLong}, .inputs = kLong, .outputs = kWide});
  const auto part = own.all[0].slice(0, 100, 117);
  const GemmKernel& kernel = *gemm_kernels().back();
  EXPECT_TRUE(at::equal(own_linear(kernel, own.call()).slice(0, 100, 117),
      own_linear(kernel, {.input = part, .weight = own.all[1], .bias = own.all[2]})));
}

TEST(Linear, IsDifferentiableTwice) {
  torch::manual_seed(6);
  const auto own = Operands::drawn({.sizes = {5}, .inputs = 4, .outputs = 3});
  const auto penalty = [](const Operands& operands, const at::Tensor& output) {
    const auto first =
        torch::autograd::grad({output.square().sum()}, {operands.all[0]}, {}, true, true);
    return torch::autograd::grad({first[0].square().sum()}, operands.all);
  };
  const auto exact = own.as(at::kDouble);
  expect_close(penalty(own, own_linear(*gemm_kernels().back(), own.call())),
      penalty(exact, exact.of_libtorch()));
}

TEST(Linear, OtherTypesAndOrdersAreLibTorchs) {
  const auto fits = [](const at::Tensor& input, const at::Tensor& weight) {
    return is_linear_own({.input = input, .weight = weight, .bias = {}});
  };
  const auto input = at::randn({4, 6}), weight = at::randn({8, 6});
  EXPECT_TRUE(fits(input, weight));
  EXPECT_TRUE(fits(at::randn({6, 4}).t(), weight)) << "the input is copied";
  EXPECT_FALSE(fits(input.to(at::kDouble), weight.to(at::kDouble)));
  EXPECT_FALSE(fits(input.to(at::kBFloat16), weight.to(at::kBFloat16)));
  EXPECT_FALSE(fits(input, at::randn({8, 12}).slice(1, 0, 6)));
  EXPECT_FALSE(fits(input, at::randn({8, 5}))) << "LibTorch says what is wrong";
  EXPECT_FALSE(fits(at::randn({0, 6}), weight));
}

// torch::nn::Linear calls linear() of neither.
TEST(Linear, IsCalledForAnyModuleWithinAScope) {
  torch::manual_seed(3);
  const auto own = Operands::drawn({.sizes = {64}, .inputs = 64, .outputs = 64});
  torch::nn::Linear without_bias(torch::nn::LinearOptions(64, 64).bias(false));
  const auto is_own = [](Kernels who, const auto& function) {
    const KernelScope scope(who);
    return function().grad_fn()->name().find("OwnLinear") != std::string::npos;
  };
  for (const Kernels who : {Kernels::kOwn, Kernels::kLibTorch}) {
    EXPECT_EQ(is_own(who, [&] { return own.of_libtorch(); }), who == Kernels::kOwn);
    EXPECT_EQ(is_own(who, [&] { return without_bias(own.all[0]); }), who == Kernels::kOwn);
    EXPECT_FALSE(is_own(who, [&] { return own.all[0].matmul(at::randn({64})); }));
    EXPECT_FALSE(is_own(who, [&] { return own.all[0].matmul(at::randn({2, 64, 64})); }));
  }
}

// The gradients that backward leaves, and the output.
Values gradients_left(const Operands& operands, Kernels who, const at::Tensor& gradient) {
  const KernelScope scope(who);
  const at::Tensor output = operands.of_libtorch();
  output.backward(gradient);
  Values results;
  for (const at::Tensor& operand : operands.all) results.push_back(operand.grad());
  results.push_back(output.detach());
  return results;
}

// Rows too few for the kernels: LibTorch's products, without a copy of the weight's gradient.
TEST(Linear, OfFewRowsHasItsGradientInThePlaceOfferedForIt) {
  const Layer layers[] = {{.sizes = {3}, .inputs = 40, .outputs = 50},
      {.sizes = {3}, .inputs = 40, .outputs = 50, .is_transposed = true},
      {.sizes = {2, 3}, .inputs = 40, .outputs = 50},
      {.sizes = {2, 3}, .inputs = 40, .outputs = 50, .has_bias = false}};
  for (const Layer& layer : layers) {
    SCOPED_TRACE(::testing::Message() << layer);
    const auto own = Operands::drawn(layer), theirs = own.as(at::kFloat);
    auto sizes = layer.sizes;
    sizes.push_back(layer.outputs);
    const at::Tensor gradient = at::randn(sizes);
    GradientPlace place(at::empty_like(own.all[1]).detach());
    place.offer_to(own.all[1]);
    const Values results = gradients_left(own, Kernels::kAuto, gradient);
    const Values wanted = gradients_left(theirs, Kernels::kLibTorch, gradient);
    EXPECT_EQ(results[1].data_ptr(), place.memory().data_ptr());
    for (std::size_t i = 0; i < wanted.size(); ++i)
      EXPECT_TRUE(torch::equal(results[i], wanted[i])) << i;
  }
}

Gemm gemm_of(const at::Tensor& left, const at::Tensor& right, const at::Tensor& products) {
  return {.left = view_of(left),
      .right = view_of(right),
      .rows = left.size(0),
      .columns = right.size(1),
      .inner = left.size(1),
      .bias = nullptr,
      .products = products.mutable_data_ptr<float>(),
      .product_stride = right.size(1)};
}

at::Tensor product_of(const GemmKernel& kernel, const at::Tensor& left, const at::Tensor& right) {
  auto products = at::empty({left.size(0), right.size(1)});
  multiply(kernel, gemm_of(left, right, products));
  return products;
}

// Whole numbers, of which sums are exact.
at::Tensor drawn_with_zeros(std::int64_t rows, std::int64_t columns, double zeros) {
  return at::randint(-3, 4, {rows, columns}, at::kFloat).mul_(at::rand({rows, columns}).gt(zeros));
}

// One infinity or NaN in some place, or none.
void add_what_is_not_finite(at::Tensor matrix, std::mt19937& generator) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  constexpr float kAll[] = {0, kInfinity, -kInfinity, std::numeric_limits<float>::quiet_NaN()};
  const float drawn = kAll[between(generator, 0, 3)];
  if (drawn != 0)
    matrix[between(generator, 0, matrix.size(0) - 1)][between(generator, 0, matrix.size(1) - 1)] =
        drawn;
}

TEST(Linear, HasTheSameProductsWhereZerosAreSkipped) {
  torch::manual_seed(11);
  std::mt19937 generator(6);
  for (const GemmKernel* const kernel : gemm_kernels()) {
    for (int round = 0; round < 60; ++round) {
      const auto rows = between(generator, 1, round % 10 == 0 ? 1100 : 40);
      const auto inner = between(generator, 1, kMostSkippingDepth);
      const auto columns = between(generator, 1, 300);
      const double zeros = 0.25 * static_cast<double>(between(generator, 0, 4));
      const auto left = between(generator, 0, 1) == 1 ? drawn_with_zeros(rows, inner, zeros)
                                                      : drawn_with_zeros(inner, rows, zeros).t();
      const auto right = drawn_with_zeros(inner, columns, 0);
      add_what_is_not_finite(right, generator);
      EXPECT_TRUE(at::allclose(product_of(kernel->skipping_zeros(), left, right),
          product_of(*kernel, left, right), 0, 0, /*equal_nan=*/true))
          << kernel->name << " " << left.sizes() << left.strides() << " x " << right.sizes();
    }
  }
}

TEST(Linear, SkipsZerosWhereThereAreManyAndWorkForAllThreads) {
  const int before = at::get_num_threads();
  const auto some = at::ones({32, 48}), many = at::randn({32, 48}).relu(),
             right = at::ones({48, 130});
  const auto products = at::empty({32, 130});
  const auto skips = [&](const at::Tensor& left, int threads) {
    at::set_num_threads(threads);
    const GemmKernel& dense = gemm_plain();
    return &kernel_for(dense, gemm_of(left, right, products), left) == &dense.skipping_zeros();
  };
  EXPECT_TRUE(skips(many, 1));
  EXPECT_FALSE(skips(some, 1));
  EXPECT_FALSE(skips(many, 64)) << "the dense product has more tasks";
  at::set_num_threads(before);
}

// A weight that is not finite makes all gradients of its inputs NaN, as in LibTorch.
TEST(Linear, PassesInfinityBackBehindReLU) {
  torch::manual_seed(12);
  const int before = at::get_num_threads();
  constexpr std::int64_t kDead = 5;
  for (const GemmKernel* const kernel : gemm_kernels()) {
    for (const int threads : {1, 8}) {
      at::set_num_threads(threads);
      const auto own = Operands::drawn({.sizes = {32}, .inputs = 130, .outputs = 48});
      const auto gradient = at::randn({32, 48}).relu_();
      gradient.select(1, kDead).zero_();
      own.all[1].detach()[kDead].fill_(std::numeric_limits<float>::infinity());
      const auto output = own_linear(*kernel, own.call());
      EXPECT_TRUE(
          torch::autograd::grad({output}, {own.all[0]}, {gradient})[0].isnan().all().item<bool>())
          << kernel->name << ", " << threads;
    }
  }
  at::set_num_threads(before);
}

// Also of matrices with gaps between their rows.
TEST(Linear, AddsAndStoresProducts) {
  torch::manual_seed(4);
  const auto left = at::randn({50, 99}).narrow(1, 4, 90),
             right = at::randn({50, 75}).narrow(1, 0, 70);
  const auto before = at::randn({90, 70});
  const auto product = at::mm(left.t().to(at::kDouble), right.to(at::kDouble));
  for (const Kernels who : {Kernels::kOwn, Kernels::kLibTorch}) {
    const KernelScope scope(who);
    auto sum = before.clone(), result = before.clone();
    add_product(sum, left.t(), right);
    store_product(result, left.t(), right);
    expect_close({sum, result}, {before.to(at::kDouble) + product, product});
  }
}

// To the bit; parts of the depth and of the panels.
TEST(Linear, MultipliesByACopyThatProductsShare) {
  torch::manual_seed(2);
  std::mt19937 generator(6);
  for (const GemmKernel* const kernel : gemm_kernels()) {
    for (int round = 0; round < 20; ++round) {
      const std::int64_t rows = between(generator, 1, 40), columns = between(generator, 1, 90);
      const std::int64_t inner = between(generator, 1, round % 4 == 0 ? 1300 : 60);
      const auto left = at::randn({rows, inner}), before = at::randn({rows, columns});
      const auto right =
          round % 2 == 0 ? at::randn({inner, columns}) : at::randn({columns, inner}).t();
      auto wanted = before.clone(), found = before.clone();
      Gemm gemm{.left = view_of(left),
          .right = view_of(right),
          .rows = rows,
          .columns = columns,
          .inner = inner,
          .bias = nullptr,
          .products = wanted.mutable_data_ptr<float>(),
          .product_stride = columns,
          .adds = round % 3 == 0};
      multiply(*kernel, gemm);
      auto packed = at::empty({kernel->packed_floats(gemm)});
      for (std::int64_t panel = kernel->panels(gemm) - 1; panel >= 0; --panel)
        kernel->pack(gemm, {panel, panel + 1}, packed.mutable_data_ptr<float>());
      gemm.right = {};
      gemm.products = found.mutable_data_ptr<float>();
      kernel->multiply_packed(gemm, packed.const_data_ptr<float>());
      EXPECT_TRUE(at::equal(found, wanted)) << kernel->name << ", round " << round;
    }
  }
}

}  // namespace
}  // namespace lockstep::nn::linear
