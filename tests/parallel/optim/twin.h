#pragma once

#include <array>
#include <cstdint>
#include <gtest/gtest.h>
#include <memory>
#include <vector>

#include <ATen/ops/arange.h>
#include <ATen/ops/full.h>
#include <ATen/ops/sin.h>
#include <torch/optim/adam.h>
#include <torch/types.h>

#include "lockstep/comm/process_group.h"
#include "lockstep/parallel/optim/sharded_optimizer.h"

namespace lockstep {

/// Returns values that depend on the seed alone, without a generator that threads would share; no
/// view, which zero_grad would refuse as a gradient.
inline torch::Tensor wave(const std::vector<std::int64_t>& shape, double seed) {
  std::int64_t elements = 1;
  for (const std::int64_t size : shape) elements *= size;
  return at::sin(at::arange(elements, torch::kFloat) * 1.7 + seed).reshape(shape).clone();
}

/// Makes the parameters of a small net, uneven in size.
inline std::vector<torch::Tensor> some_parameters() {
  std::vector<torch::Tensor> parameters;
  for (const std::vector<std::int64_t>& shape :
      std::vector<std::vector<std::int64_t>>{{7, 5}, {7}, {3, 7}, {3}, {1}, {2, 2, 3}}) {
    parameters.push_back(wave(shape, static_cast<double>(parameters.size())).requires_grad_());
  }
  return parameters;
}

inline std::unique_ptr<torch::optim::Optimizer> adam(const std::vector<torch::Tensor>& parameters) {
  return std::make_unique<torch::optim::Adam>(parameters, torch::optim::AdamOptions(0.1));
}

/// Gives every parameter the gradient of a step; the `without`-th gets none.
inline void set_gradients(
    const std::vector<torch::Tensor>& parameters, int step, std::size_t without = SIZE_MAX) {
  for (std::size_t index = 0; index < parameters.size(); ++index) {
    const torch::Tensor& parameter = parameters[index];
    const double seed = 100 * step + static_cast<double>(index);
    parameter.mutable_grad() =
        index == without ? torch::Tensor() : wave(parameter.sizes().vec(), seed);
  }
}

inline void expect_equal(const std::vector<torch::Tensor>& a, const std::vector<torch::Tensor>& b) {
  for (std::size_t index = 0; index < a.size(); ++index)
    EXPECT_TRUE(a[index].equal(b[index])) << index;
}

/// The same parameters twice: under a plain optimizer and under a sharded one.
struct Twin {
  template <typename Make>
  Twin(const ProcessGroup& group, Make make)
      : plain(make(plain_parameters)), sharded(make(sharded_parameters), group) {}

  void step(int number, std::size_t without = SIZE_MAX) {
    set_gradients(plain_parameters, number, without);
    set_gradients(sharded_parameters, number, without);
    plain->step();
    sharded.step();
  }

  std::array<torch::optim::Optimizer*, 2> both() { return {plain.get(), &sharded}; }

  /// Makes a step after which the parameters must be equal.
  void step_alike(int number, std::size_t without = SIZE_MAX) {
    step(number, without);
    expect_equal(plain_parameters, sharded_parameters);
  }

  std::vector<torch::Tensor> plain_parameters = some_parameters();
  std::vector<torch::Tensor> sharded_parameters = some_parameters();
  std::unique_ptr<torch::optim::Optimizer> plain;
  ShardedOptimizer sharded;
};

}  // namespace lockstep
