// GELU: what LibTorch computes in double precision.

#include "lockstep/nn/fused/gelu.h"

#include <gtest/gtest.h>
#include <limits>

#include <ATen/Parallel.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/types.h>

namespace lockstep::nn::fused {
namespace {

constexpr GeluForm kForms[] = {GeluForm::kExact, GeluForm::kTanh};

at::Tensor of_libtorch(const at::Tensor& input, GeluForm form) {
  return at::gelu(input, form == GeluForm::kTanh ? "tanh" : "none");
}

// Ordinary values, and those where e^x has no room.
at::Tensor inputs_of(std::int64_t count) {
  return at::cat({at::randn({count}) * 2, at::linspace(-60, 60, 1000)});
}

void expect_near(const at::Tensor& result, const at::Tensor& wanted, double allowed) {
  EXPECT_LE((result.to(at::kDouble) - wanted).abs().max().item<double>(), allowed);
}

void expect_agrees(const GeluKernel& kernel, GeluForm form, std::int64_t count) {
  const auto input = inputs_of(count).requires_grad_();
  const auto exact = input.detach().to(at::kDouble).requires_grad_();
  const auto output = own_gelu(kernel, form, input), wanted = of_libtorch(exact, form);
  const auto gradient = at::randn(output.sizes());
  expect_near(output, wanted, 4e-6);  // of values up to 60
  expect_near(torch::autograd::grad({output}, {input}, {gradient})[0],
      torch::autograd::grad({wanted}, {exact}, {gradient.to(at::kDouble)})[0], 2e-5);
}

TEST(Gelu, AgreesWithDoublePrecision) {
  torch::manual_seed(3);
  const auto before = at::get_num_threads();
  for (const GeluKernel* const kernel : gelu_kernels()) {
    for (const GeluForm form : kForms) {
      for (const std::int64_t count : {0L, 3L, 50'001L}) {
        at::set_num_threads(count == 3 ? 1 : 2);
        SCOPED_TRACE(::testing::Message()
                     << kernel->name << ", form " << static_cast<int>(form) << ", " << count);
        expect_agrees(*kernel, form, count);
      }
    }
  }
  at::set_num_threads(before);
}

TEST(Gelu, OfValuesFarFromZeroIsZeroOrTheValue) {
  const auto far = at::logspace(2, 18, 17);
  const auto input = at::cat({-far, far}).requires_grad_();
  const auto is_kept = (input > 0).to(at::kFloat);
  for (const GeluKernel* const kernel : gelu_kernels()) {
    for (const GeluForm form : kForms) {
      const auto output = own_gelu(*kernel, form, input);
      EXPECT_TRUE(output.equal(input * is_kept)) << kernel->name;
      EXPECT_TRUE(torch::autograd::grad({output.sum()}, {input})[0].equal(is_kept)) << kernel->name;
    }
  }
}

TEST(Gelu, ReadsValuesInAnyOrderOfMemory) {
  torch::manual_seed(4);
  const auto input = at::randn({30, 20}).t().requires_grad_();
  const auto gradient = at::randn({20, 30});
  ASSERT_TRUE(is_gelu_own(input));
  for (const GeluForm form : kForms) {
    const auto output = own_gelu(*gelu_kernels().back(), form, input),
               wanted = of_libtorch(input, form);
    expect_near(output, wanted.to(at::kDouble), 2e-6);
    expect_near(torch::autograd::grad({output}, {input}, {gradient})[0],
        torch::autograd::grad({wanted}, {input}, {gradient})[0].to(at::kDouble), 4e-6);
  }
}

TEST(Gelu, NaNStaysAndIsDifferentiableTwice) {
  const auto nan = at::full({5}, std::numeric_limits<float>::quiet_NaN());
  const auto input = at::randn({7}).requires_grad_();
  const auto twice = [&](const at::Tensor& output) {
    const auto first = torch::autograd::grad({output.sum()}, {input}, {}, true, true)[0];
    return torch::autograd::grad({first.square().sum()}, {input})[0];
  };
  for (const GeluForm form : kForms) {
    EXPECT_TRUE(own_gelu(*gelu_kernels().back(), form, nan).isnan().all().item<bool>());
    expect_near(twice(own_gelu(*gelu_kernels().back(), form, input)),
        twice(of_libtorch(input, form)).to(at::kDouble), 1e-5);
  }
}

// Rounded to a step of bf16, which is 1 / 128 of a value at most.
TEST(Gelu, OfBFloat16IsRounded) {
  for (const GeluKernel* const kernel : gelu_kernels()) {
    for (const GeluForm form : kForms) {
      const auto input = inputs_of(1001).to(at::kBFloat16).requires_grad_();
      const auto exact = input.detach().to(at::kDouble).requires_grad_();
      const auto output = own_gelu(*kernel, form, input), wanted = of_libtorch(exact, form);
      EXPECT_EQ(output.scalar_type(), at::kBFloat16);
      EXPECT_TRUE(at::allclose(output.to(at::kDouble), wanted, 1.0 / 256, 1e-6)) << kernel->name;
      const auto found = torch::autograd::grad({output.sum()}, {input})[0];
      const auto gradient = torch::autograd::grad({wanted.sum()}, {exact})[0];
      EXPECT_TRUE(at::allclose(found.to(at::kDouble), gradient, 1.0 / 256, 1e-5)) << kernel->name;
    }
  }
}

TEST(Gelu, OtherTypesAndHolesAreLibTorchs) {
  EXPECT_FALSE(is_gelu_own(at::randn({4}, at::kDouble)));
  EXPECT_FALSE(is_gelu_own(at::randn({4, 6}).slice(1, 0, 3)));
}

}  // namespace
}  // namespace lockstep::nn::fused
