#pragma once

#include <functional>
#include <limits>
#include <string>

#include "tests/support/places.h"
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>
#include <torch/optim/sgd.h>
#include <torch/types.h>

#include "lockstep/core/error.h"
#include "lockstep/nn/grad_scaler.h"

namespace lockstep::nn {

inline constexpr double kInf = std::numeric_limits<double>::infinity();

/// One parameter of two numbers with an optimizer, and a gradient that is set by hand.
struct OneParameter {
  OneParameter()
      : parameter(lockstep::testing::here(at::zeros({2})).set_requires_grad(true)),
        optimizer({parameter}, 1.0) {}
  void set_gradient(double second) {
    parameter.mutable_grad() = lockstep::testing::here(torch::tensor({1.0, second}).to(at::kFloat));
  }
  double moved() const { return -parameter[0].item<double>(); }

  torch::Tensor parameter;
  torch::optim::SGD optimizer;
};

/// Does what every iteration begins with.
inline void scale_something(GradScaler& scaler) { scaler.scale(at::ones({})); }

}  // namespace lockstep::nn
