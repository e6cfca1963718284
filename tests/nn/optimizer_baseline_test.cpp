// Long runs against Python PyTorch's optimizers, made by tests/conformance/optimizers.py (OPT:
// test/cpp/api/optim.cpp).

#include <cmath>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <string>
#include <vector>

#include "tests/support/expected_numbers.h"
#include <ATen/core/grad_mode.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/sigmoid.h>
#include <ATen/ops/sin.h>

#include "lockstep/nn/fused_optimizers.h"

namespace lockstep::nn {
namespace {

using ::testing::DoubleNear;
using ::testing::Pointwise;
using torch::optim::AdamOptions;
using torch::optim::AdamWOptions;
using torch::optim::SGDOptions;

at::Tensor start_values(at::IntArrayRef sizes, double start) {
  const auto count = at::arange(c10::multiply_integers(sizes), at::kDouble);
  return at::sin(count * count * 0.37 + start).view(sizes);
}

// Weight and bias of Linear 2-3 and Linear 3-1.
std::vector<at::Tensor> parameters() {
  const std::vector<std::vector<std::int64_t>> shapes = {{3, 2}, {3}, {1, 3}, {1}};
  std::vector<at::Tensor> result;
  for (std::size_t place = 0; place < shapes.size(); ++place)
    result.push_back(
        (start_values(shapes[place], static_cast<double>(place)) * 0.5).set_requires_grad(true));
  return result;
}

template <typename Optimizer, typename Options>
std::vector<double> long_run(const Options& options) {
  const auto all = parameters();
  Optimizer optimizer(all, options);
  const auto inputs = at::arange(1, 7, at::kDouble).view({3, 2}) / 10;
  std::vector<double> seen;
  for (int step = 0; step <= 1000; ++step) {
    optimizer.zero_grad();
    const auto hidden = at::sigmoid(at::linear(inputs, all[0], all[1]));
    at::sigmoid(at::linear(hidden, all[2], all[3])).sum().backward();
    optimizer.step();
    if (step % 100 != 0) continue;
    for (const auto& parameter : all) {
      const auto* values = parameter.const_data_ptr<double>();
      seen.insert(seen.end(), values, values + parameter.numel());
    }
  }
  return seen;
}

template <typename Optimizer, typename Options>
void expect_run(const Options& options, const std::string& name) {
  const auto expected = testing::expected_numbers("optimizers.txt", name);
  EXPECT_THAT((long_run<Optimizer>(options)), Pointwise(DoubleNear(1e-10), expected)) << name;
}

TEST(OptimizerBaseline, Sgd) {
  const auto momentum = SGDOptions(0.1).momentum(0.9);
  expect_run<SGD>(SGDOptions(0.1), "LongSgd");
  expect_run<SGD>(momentum, "LongSgdMomentum");
  expect_run<SGD>(SGDOptions(momentum).weight_decay(1e-2), "LongSgdMomentumDecay");
  expect_run<SGD>(SGDOptions(momentum).weight_decay(1e-6).nesterov(true), "LongSgdNesterovDecay");
}

TEST(OptimizerBaseline, Adam) {
  expect_run<Adam>(AdamOptions(1.0), "LongAdam");
  expect_run<Adam>(AdamOptions(1.0).weight_decay(1e-2), "LongAdamDecay");
  expect_run<Adam>(AdamOptions(1.0).weight_decay(1e-6).amsgrad(true), "LongAdamAmsgradDecay");
}

TEST(OptimizerBaseline, AdamW) {
  expect_run<AdamW>(AdamWOptions(1.0), "LongAdamW");
  expect_run<AdamW>(AdamWOptions(1.0).weight_decay(0), "LongAdamWNoDecay");
  expect_run<AdamW>(AdamWOptions(1.0).amsgrad(true), "LongAdamWAmsgrad");
}

}  // namespace
}  // namespace lockstep::nn
