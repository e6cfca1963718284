#include "lockstep/nn/autocast.h"

#include <gtest/gtest.h>
#include <stdexcept>
#include <thread>

#include <ATen/autocast_mode.h>
#include <ATen/ops/add.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/mse_loss.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/softmax.h>

namespace lockstep::nn {
namespace {

at::ScalarType type_of_product() {
  return at::matmul(at::ones({2, 2}), at::ones({2, 2})).scalar_type();
}

TEST(Autocast, ShortensMatrixProductsAndKeepsSumsAndLosses) {
  const auto x = at::ones({2, 2});
  const Autocast autocast(at::kCPU);
  const auto product = at::matmul(x, x);
  EXPECT_EQ(product.scalar_type(), at::kBFloat16);
  EXPECT_EQ(at::softmax(x, 1).scalar_type(), at::kFloat);
  EXPECT_EQ(at::mse_loss(product, x).scalar_type(), at::kFloat);
  EXPECT_EQ(at::add(x, x).scalar_type(), at::kFloat);
}

TEST(Autocast, EndsWithItsScope) {
  { const Autocast autocast(at::kCPU, at::kHalf); }
  EXPECT_EQ(type_of_product(), at::kFloat);
  EXPECT_EQ(at::autocast::get_autocast_dtype(at::kCPU), at::kBFloat16);
}

TEST(Autocast, EndsByAnException) {
  const auto fail = [] {
    const Autocast autocast(at::kCPU);
    throw std::runtime_error("stop");
  };
  EXPECT_THROW(fail(), std::runtime_error);
  EXPECT_EQ(type_of_product(), at::kFloat);
}

TEST(Autocast, Nests) {
  const Autocast outer(at::kCPU);
  {
    const Autocast island(at::kCPU, at::kBFloat16, /*enabled=*/false);
    EXPECT_EQ(type_of_product(), at::kFloat);
    {
      const Autocast inner(at::kCPU, at::kHalf);
      EXPECT_EQ(type_of_product(), at::kHalf);
    }
    EXPECT_EQ(type_of_product(), at::kFloat);
  }
  EXPECT_EQ(type_of_product(), at::kBFloat16);
}

TEST(Autocast, ForgetsCastParametersAtTheOutermostEnd) {
  const auto parameter = at::ones({2, 2}).set_requires_grad(true);
  const auto x = at::ones({2, 2});
  const auto first_value = [&] {
    const Autocast autocast(at::kCPU);
    return at::matmul(x, parameter)[0][0].item<float>();
  };
  EXPECT_EQ(first_value(), 2);
  parameter.detach().fill_(3);
  EXPECT_EQ(first_value(), 6);
}

TEST(Autocast, KeepsCastParametersUntilTheOutermostEnd) {
  const auto parameter = at::ones({2, 2}).set_requires_grad(true);
  const auto x = at::ones({2, 2});
  const Autocast outer(at::kCPU);
  const auto once = at::matmul(x, parameter);
  parameter.detach().fill_(3);
  { const Autocast inner(at::kCPU); }
  EXPECT_EQ(at::matmul(x, parameter)[0][0].item<float>(), 2);
}

TEST(Autocast, HoldsForItsThreadOnly) {
  const Autocast autocast(at::kCPU);
  at::ScalarType elsewhere{};
  std::thread([&] { elsewhere = type_of_product(); }).join();
  EXPECT_EQ(elsewhere, at::kFloat);
}

}  // namespace
}  // namespace lockstep::nn
