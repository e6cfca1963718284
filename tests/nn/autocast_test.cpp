#include "lockstep/nn/autocast.h"

#include <functional>
#include <gtest/gtest.h>
#include <map>
#include <stdexcept>
#include <string>
#include <thread>

#include "tests/nn/autocast_expected.h"
#include <ATen/ATen.h>
#include <ATen/autocast_mode.h>
#include <torch/types.h>

namespace lockstep::nn {
namespace {

at::ScalarType type_of_product() {
  return at::matmul(at::ones({2, 2}), at::ones({2, 2})).scalar_type();
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

// Which operations autocast computes in which type: PyTorch's lists, which are LibTorch's own. The
// case G12 of the conformance list, and more; types of tests/conformance/autocast.py.

using at::Tensor;
using Operation = std::function<Tensor(const Tensor& x, const Tensor& z)>;

Tensor labels() { return torch::tensor({0, 1}, at::kLong); }
Tensor image(const Tensor& x) { return x.view({2, 1, 2, 2}); }
Tensor cube(const Tensor& x) { return x.view({2, 2, 2}); }
Tensor tokens(const Tensor& x) { return x.view({1, 1, 2, 4}); }

// As in the script: x is [2, 4], z the same values in float32.
const std::map<std::string, Operation>& operations() {
  static const std::map<std::string, Operation> kAll = {
      {"mm", [](auto& x, auto&) { return at::mm(x, x.t()); }},
      {"matmul", [](auto& x, auto&) { return at::matmul(x, x.t()); }},
      {"addmm", [](auto& x, auto&) { return at::addmm(x.narrow(1, 0, 2), x, x.t()); }},
      {"bmm", [](auto& x, auto&) { return at::bmm(cube(x), cube(x)); }},
      {"baddbmm", [](auto& x, auto&) { return at::baddbmm(cube(x), cube(x), cube(x)); }},
      {"linear", [](auto& x, auto&) { return at::linear(x, x); }},
      {"conv1d",
          [](auto& x, auto&) {
            return at::conv1d(x.view({2, 1, 4}), x.view({2, 1, 4}));
          }},
      {"conv2d", [](auto& x, auto&) { return at::conv2d(image(x), image(x)); }},
      {"conv3d",
          [](auto& x, auto&) {
            return at::conv3d(x.view({2, 1, 1, 2, 2}), x.view({2, 1, 1, 2, 2}));
          }},
      {"conv_transpose2d",
          [](auto& x, auto&) {
            return at::conv_transpose2d(image(x), x.view({1, 2, 2, 2}));
          }},
      {"scaled_dot_product_attention",
          [](auto& x, auto&) {
            return at::scaled_dot_product_attention(tokens(x), tokens(x), tokens(x));
          }},
      {"prelu", [](auto& x, auto&) { return at::prelu(x, x[0].narrow(0, 0, 1)); }},
      {"softmax", [](auto& x, auto&) { return at::softmax(x, 1); }},
      {"log_softmax", [](auto& x, auto&) { return at::log_softmax(x, 1); }},
      {"mse_loss", [](auto& x, auto&) { return at::mse_loss(x, x); }},
      {"l1_loss", [](auto& x, auto&) { return at::l1_loss(x, x); }},
      {"smooth_l1_loss", [](auto& x, auto&) { return at::smooth_l1_loss(x, x); }},
      {"huber_loss", [](auto& x, auto&) { return at::huber_loss(x, x); }},
      {"cross_entropy_loss", [](auto& x, auto&) { return at::cross_entropy_loss(x, labels()); }},
      {"nll_loss", [](auto& x, auto&) { return at::nll_loss_nd(x, labels()); }},
      {"binary_cross_entropy", [](auto& x, auto&) { return at::binary_cross_entropy(x, x); }},
      {"binary_cross_entropy_with_logits",
          [](auto& x, auto&) { return at::binary_cross_entropy_with_logits(x, x); }},
      {"kl_div", [](auto& x, auto&) { return at::kl_div(x, x, at::Reduction::Sum); }},
      {"layer_norm", [](auto& x, auto&) { return at::layer_norm(x, {4}); }},
      {"group_norm", [](auto& x, auto&) { return at::group_norm(image(x), 1); }},
      {"batch_norm",
          [](auto& x, auto&) {
            return at::batch_norm(x, {}, {}, at::zeros(4), at::ones(4), true, 0.1, 1e-5, false);
          }},
      {"relu", [](auto& x, auto&) { return at::relu(x); }},
      {"gelu", [](auto& x, auto&) { return at::gelu(x); }},
      {"sigmoid", [](auto& x, auto&) { return at::sigmoid(x); }},
      {"exp", [](auto& x, auto&) { return at::exp(x); }},
      {"pow", [](auto& x, auto&) { return at::pow(x, 2); }},
      {"add", [](auto& x, auto&) { return x + x; }},
      {"mul", [](auto& x, auto&) { return x * x; }},
      {"sum", [](auto& x, auto&) { return x.sum(); }},
      {"mean", [](auto& x, auto&) { return x.mean(); }},
      {"prod", [](auto& x, auto&) { return x.prod(); }},
      {"cdist", [](auto& x, auto&) { return at::cdist(x, x); }},
      {"max_pool2d", [](auto& x, auto&) { return at::max_pool2d(image(x), 2); }},
      {"avg_pool2d", [](auto& x, auto&) { return at::avg_pool2d(image(x), 2); }},
      {"adaptive_avg_pool2d",
          [](auto& x, auto&) {
            return at::adaptive_avg_pool2d(image(x), {1, 1});
          }},
      {"upsample_bilinear2d",
          [](auto& x, auto&) {
            return at::upsample_bilinear2d(image(x), {4, 4}, false);
          }},
      {"mixed add", [](auto& x, auto& z) { return x + z; }},
      {"mixed cat",
          [](auto& x, auto& z) {
            return at::cat({x, z});
          }},
      {"mixed stack",
          [](auto& x, auto& z) {
            return at::stack({x, z});
          }},
      {"mixed mm", [](auto& x, auto& z) { return at::mm(x, z.t()); }},
      {"mixed mse_loss", [](auto& x, auto& z) { return at::mse_loss(x, z); }},
  };
  return kAll;
}

std::string python_name(at::ScalarType type) {
  if (type == at::kHalf) return "float16";
  if (type == at::kBFloat16) return "bfloat16";
  return type == at::kFloat ? "float32" : "another";
}

std::string result_type(const std::string& name, at::ScalarType shorter, at::ScalarType inputs) {
  const Tensor z = (at::arange(8, at::kFloat) + 1).view({2, 4}) / 16;
  const Tensor x = z.to(inputs);
  const Autocast autocast(at::kCPU, shorter);
  return python_name(operations().at(name)(x, z).scalar_type());
}

class AutocastTypes : public ::testing::TestWithParam<lockstep::testing::AutocastTypes> {};

TEST_P(AutocastTypes, AreThoseOfPythonG12) {
  const auto& expected = GetParam();
  const std::string name = expected.operation;
  ASSERT_TRUE(operations().contains(name));
  EXPECT_EQ(result_type(name, at::kHalf, at::kFloat), expected.half_of_float);
  EXPECT_EQ(result_type(name, at::kHalf, at::kHalf), expected.half_of_half);
  EXPECT_EQ(result_type(name, at::kBFloat16, at::kFloat), expected.bfloat16_of_float);
  EXPECT_EQ(result_type(name, at::kBFloat16, at::kBFloat16), expected.bfloat16_of_bfloat16);
}

INSTANTIATE_TEST_SUITE_P(Operations, AutocastTypes,
    ::testing::ValuesIn(lockstep::testing::kAutocastTypes), [](const auto& test) {
      std::string name = test.param.operation;
      for (char& letter : name) letter = letter == ' ' ? '_' : letter;
      return name;
    });

}  // namespace
}  // namespace lockstep::nn
