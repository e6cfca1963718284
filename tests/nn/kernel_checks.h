#pragma once

// What kernels compute and their gradients, beside LibTorch's in double precision.

#include <algorithm>
#include <functional>
#include <gtest/gtest.h>
#include <random>
#include <span>
#include <vector>

#include <ATen/Parallel.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/types.h>

namespace lockstep::nn::fused {
namespace {  // beside helpers of the same name that a test has for its own

using Tensors = std::vector<at::Tensor>;
using Function = std::function<at::Tensor(const Tensors& inputs)>;

constexpr double kOfFloat = 1e-5, kOfBFloat16 = 0.02;

inline Tensors leaves(const Tensors& inputs, at::ScalarType type) {
  Tensors copies;
  for (const at::Tensor& input : inputs)
    copies.push_back(input.detach().to(type, false, true).requires_grad_());
  return copies;
}

inline void expect_close(const at::Tensor& result, const at::Tensor& wanted, double allowed) {
  ASSERT_EQ(result.sizes(), wanted.sizes());
  const double scale = std::max(1.0, wanted.abs().max().item<double>());
  EXPECT_LE((result.to(at::kDouble) - wanted).abs().max().item<double>(), allowed * scale);
}

// Inputs are first rounded to the type, which is not the kernel's error.
inline void expect_agrees(const Function& own, const Function& of_libtorch, const Tensors& drawn,
    at::ScalarType type = at::kFloat, double of_float = kOfFloat) {
  const Tensors inputs = leaves(drawn, type), exact = leaves(inputs, at::kDouble);
  const at::Tensor output = own(inputs), wanted = of_libtorch(exact);
  const at::Tensor gradient = at::randn(output.sizes()).to(type);
  const double allowed = type == at::kFloat ? of_float : kOfBFloat16;
  EXPECT_EQ(output.scalar_type(), type);
  expect_close(output, wanted, allowed);
  const auto gradients = torch::autograd::grad({output}, inputs, {gradient});
  const auto expected = torch::autograd::grad({wanted}, exact, {gradient.to(at::kDouble)});
  for (std::size_t i = 0; i < expected.size(); ++i)
    expect_close(gradients[i], expected[i], allowed);
}

// Along a drawn direction of each input, by differences of what the function itself computes.
inline void expect_numerical_gradients(const Function& own, const Tensors& drawn) {
  constexpr double kStep = 1e-2;
  const Tensors inputs = leaves(drawn, at::kFloat);
  const at::Tensor output = own(inputs), weights = at::randn(output.sizes());
  const auto gradients = torch::autograd::grad({output}, inputs, {weights});
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    const at::Tensor direction = at::randn(inputs[i].sizes());
    const auto moved = [&](double step) {
      Tensors all = leaves(inputs, at::kFloat);
      all[i] = (inputs[i] + step * direction).detach();
      return own(all).detach().to(at::kDouble);
    };
    const double found =
        ((moved(kStep) - moved(-kStep)) * weights).sum().item<double>() / 2 / kStep;
    const double wanted = (gradients[i] * direction).sum().item<double>();
    EXPECT_NEAR(found, wanted, 5e-3 * (gradients[i] * direction).norm().item<double>() + 1e-3) << i;
  }
}

// The gradient of one input alone is the same as beside the others.
inline void expect_same_of_each_alone(const Function& own, const Tensors& drawn) {
  const Tensors inputs = leaves(drawn, at::kFloat);
  const auto all = torch::autograd::grad({own(inputs).square().sum()}, inputs);
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    Tensors frozen;
    for (const at::Tensor& input : inputs) frozen.push_back(input.detach());
    frozen[i].requires_grad_();
    const auto alone = torch::autograd::grad({own(frozen).square().sum()}, {frozen[i]});
    EXPECT_TRUE(at::equal(alone[0], all[i])) << i;
  }
}

inline void expect_same_bits_for_any_threads(const std::function<Tensors()>& results) {
  const int before = at::get_num_threads();
  at::set_num_threads(1);
  const Tensors alone = results();
  for (const int threads : {2, 3}) {
    at::set_num_threads(threads);
    const Tensors shared = results();
    for (std::size_t i = 0; i < alone.size(); ++i)
      EXPECT_TRUE(at::equal(alone[i], shared[i])) << threads << " threads, " << i;
  }
  at::set_num_threads(before);
}

// Output and gradients.
inline void expect_same_bits_for_any_threads(const Function& own, const Tensors& drawn) {
  const Tensors inputs = leaves(drawn, at::kFloat);
  expect_same_bits_for_any_threads([&] {
    const at::Tensor output = own(inputs);
    Tensors results = torch::autograd::grad({output.square().sum()}, inputs);
    results.push_back(output);
    return results;
  });
}

// The gradient of a gradient's square.
inline void expect_same_twice(
    const Function& own, const Function& of_libtorch, const Tensors& drawn) {
  const auto twice = [](const Function& function, const Tensors& inputs) {
    const auto first =
        torch::autograd::grad({function(inputs).square().sum()}, inputs, {}, true, true);
    return torch::autograd::grad({first.front().square().sum()}, inputs);
  };
  const Tensors inputs = leaves(drawn, at::kFloat), exact = leaves(drawn, at::kDouble);
  const auto found = twice(own, inputs), expected = twice(of_libtorch, exact);
  for (std::size_t i = 0; i < expected.size(); ++i) expect_close(found[i], expected[i], 1e-4);
}

template <typename Kernel>
void with_each(std::span<const Kernel* const> kernels,
    const std::function<void(const Kernel& kernel, std::mt19937& generator)>& body) {
  torch::manual_seed(11);
  std::mt19937 generator(3);
  const int before = at::get_num_threads();
  for (const Kernel* const kernel : kernels) {
    SCOPED_TRACE(kernel->name);
    for (int round = 0; round < 20 && !::testing::Test::HasFailure(); ++round) {
      at::set_num_threads(1 + round % 2);
      body(*kernel, generator);
    }
  }
  at::set_num_threads(before);
}

}  // namespace
}  // namespace lockstep::nn::fused
