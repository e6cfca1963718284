// The cases G3 and G4 of the conformance list.

#include <cmath>
#include <gtest/gtest.h>
#include <limits>

#include <ATen/ops/arange.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/sparse_coo_tensor.h>
#include <ATen/ops/zeros.h>
#include <torch/types.h>

#include "lockstep/nn/unscale_gradients.h"

namespace lockstep::nn {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();

torch::Tensor parameter_with(const torch::Tensor& gradient) {
  auto parameter = at::zeros(gradient.sizes(), gradient.options().layout(at::kStrided));
  parameter.mutable_grad() = gradient;
  return parameter;
}

torch::Tensor row(double a, double b, at::ScalarType type = at::kFloat) {
  return torch::tensor({a, b}).to(type);
}

TEST(UnscaleGradients, MultipliesInPlaceG3) {
  const auto parameter = parameter_with(row(4, 8));
  const void* memory = parameter.grad().data_ptr();
  const auto found = unscale_gradients({parameter}, 0.25);
  EXPECT_TRUE(found.any);
  EXPECT_TRUE(found.finite);
  EXPECT_TRUE(parameter.grad().equal(row(1, 2)));
  EXPECT_EQ(parameter.grad().data_ptr(), memory);
}

TEST(UnscaleGradients, FindsWhatIsNotFiniteAnywhereG3) {
  for (const double bad : {kInf, -kInf, std::nan("")}) {
    for (const int place : {0, 1, 2}) {
      std::vector<torch::Tensor> parameters;
      for (int i = 0; i < 3; ++i)
        parameters.push_back(parameter_with(row(4, i == place ? bad : 8)));
      EXPECT_FALSE(unscale_gradients(parameters, 0.25).finite) << bad << " in " << place;
      for (int i = 0; i < 3; ++i) {
        const auto gradient = parameters[static_cast<std::size_t>(i)].grad();
        EXPECT_EQ(gradient[0].item<double>(), 1);
        EXPECT_EQ(gradient[1].item<double>() == 2, i != place) << bad << " in " << place;
      }
    }
  }
}

TEST(UnscaleGradients, TakesStridedAndChannelsLastG3) {
  const auto whole = at::arange(24, at::kFloat).view({2, 3, 2, 2});
  const auto transposed = parameter_with(whole.select(0, 1).permute({2, 0, 1}));
  const auto last = parameter_with(whole.contiguous(at::MemoryFormat::ChannelsLast).clone());
  EXPECT_TRUE(unscale_gradients({transposed, last}, 0.5).finite);
  EXPECT_TRUE(whole.select(0, 0).equal(at::arange(12, at::kFloat).view({3, 2, 2})));
  EXPECT_TRUE(whole.select(0, 1).equal(at::arange(12, 24, at::kFloat).view({3, 2, 2}) / 2));
  EXPECT_TRUE(last.grad().equal(at::arange(24, at::kFloat).view({2, 3, 2, 2}) / 2));
  EXPECT_TRUE(last.grad().is_contiguous(at::MemoryFormat::ChannelsLast));
}

TEST(UnscaleGradients, TakesSeveralTypesAtOnceG3) {
  std::vector<torch::Tensor> parameters;
  const auto types = {at::kFloat, at::kDouble, at::kHalf, at::kBFloat16};
  for (const auto type : types) parameters.push_back(parameter_with(row(4, 8, type)));
  EXPECT_TRUE(unscale_gradients(parameters, 0.25).finite);
  for (const auto& parameter : parameters) {
    EXPECT_TRUE(parameter.grad().to(at::kFloat).equal(row(1, 2))) << parameter.scalar_type();
  }
  for (const auto& parameter : parameters) {
    parameter.mutable_grad()[1].fill_(kInf);
    EXPECT_FALSE(unscale_gradients(parameters, 1).finite) << parameter.scalar_type();
    parameter.mutable_grad()[1].fill_(1);
  }
}

TEST(UnscaleGradients, PassesOverWhatHasNoGradientOrElement) {
  EXPECT_FALSE(unscale_gradients({}, 0.25).any);
  const auto without = at::zeros({2});
  EXPECT_FALSE(unscale_gradients({without}, 0.25).any);
  const auto empty = parameter_with(at::zeros({0, 3}));
  const auto found = unscale_gradients({without, empty}, 0.25);
  EXPECT_TRUE(found.any);
  EXPECT_TRUE(found.finite);
}

TEST(UnscaleGradients, CountsATiedParameterOnce) {
  const auto parameter = parameter_with(row(4, 8));
  unscale_gradients({parameter, parameter}, 0.25);
  EXPECT_TRUE(parameter.grad().equal(row(1, 2)));
}

torch::Tensor sparse(const std::vector<std::int64_t>& indices, const torch::Tensor& values) {
  return at::sparse_coo_tensor(
      torch::tensor(indices).unsqueeze(0), values, {8}, values.options().layout(at::kSparse));
}

TEST(UnscaleGradients, TakesSparseOnesG4) {
  const auto parameter =
      parameter_with(sparse({1, 3, 5}, torch::tensor({16.0, 32.0, 64.0}).to(at::kFloat)));
  EXPECT_TRUE(unscale_gradients({parameter}, 0.25).finite);
  EXPECT_TRUE(parameter.grad()._values().equal(torch::tensor({4.0, 8.0, 16.0}).to(at::kFloat)));
  parameter.mutable_grad()._values()[2].fill_(kInf);
  EXPECT_FALSE(unscale_gradients({parameter}, 0.25).finite);
}

TEST(UnscaleGradients, FindsAnOverflowOfSparseDuplicatesG4) {
  const auto values = at::full({2}, 64000, at::kHalf);
  EXPECT_TRUE(unscale_gradients({parameter_with(sparse({1, 3}, values.clone()))}, 1).finite);
  const auto parameter = parameter_with(sparse({1, 1}, values.clone()));
  EXPECT_FALSE(unscale_gradients({parameter}, 1).finite);
  EXPECT_TRUE(parameter.grad().is_coalesced());
}

}  // namespace
}  // namespace lockstep::nn
