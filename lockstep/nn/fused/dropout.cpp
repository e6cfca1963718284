#include "lockstep/nn/fused/dropout.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/dropout_native.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/empty_strided.h>
#include <torch/csrc/autograd/custom_function.h>

#include "lockstep/device/host_tensor.h"
#include "lockstep/nn/in_parallel.h"
#include "lockstep/nn/kernels.h"
#include "lockstep/simd/instructions.h"

namespace lockstep::nn::fused {
namespace {

std::uint32_t drop_below(double p) {
  constexpr auto kMost = std::numeric_limits<std::uint32_t>::max();
  return static_cast<std::uint32_t>(std::min(std::round(std::ldexp(p, 32)), double{kMost}));
}

at::Tensor dropped(
    const DropoutKernel& kernel, const at::Tensor& input, double p, std::uint64_t seed) {
  auto output = at::empty_like(input);
  DropoutJob job = dropout_job(p, seed);
  job.inputs = input.const_data_ptr<float>();
  job.outputs = output.mutable_data_ptr<float>();
  const std::int64_t count = input.numel();
  in_parallel(dropout_blocks(count), [&](Range blocks) { kernel.drop(job, blocks, count); });
  return output;
}

at::Tensor with_strides(const at::Tensor& values, at::IntArrayRef strides) {
  if (values.strides() == strides) return values;
  return at::empty_strided(values.sizes(), strides, values.options()).copy_(values);
}

// Values lie in one piece and are numbered by their places in memory. Its backward is the same
// dropout, of gradients that lie alike.
class OwnDropout : public torch::autograd::Function<OwnDropout> {
 public:
  static at::Tensor forward(torch::autograd::AutogradContext* context, const at::Tensor& input,
      double p, std::int64_t seed, const DropoutKernel* kernel) {
    context->saved_data["p"] = p;
    context->saved_data["seed"] = seed;
    context->saved_data["kernel"] = reinterpret_cast<std::intptr_t>(kernel);
    context->saved_data["strides"] = input.strides().vec();
    return dropped(*kernel, input, p, static_cast<std::uint64_t>(seed));
  }

  static torch::autograd::variable_list backward(
      torch::autograd::AutogradContext* context, torch::autograd::variable_list gradients) {
    const double p = context->saved_data["p"].toDouble();
    const auto seed = static_cast<std::uint64_t>(context->saved_data["seed"].toInt());
    const auto& kernel =
        *reinterpret_cast<const DropoutKernel*>(context->saved_data["kernel"].toInt());
    const auto given = with_strides(gradients[0], context->saved_data["strides"].toIntVector());
    const auto gradient = at::GradMode::is_enabled() ? own_dropout(kernel, given, p, seed)
                                                     : dropped(kernel, given, p, seed);
    return {gradient, {}, {}, {}};
  }
};

}  // namespace

std::span<const DropoutKernel* const> dropout_kernels() {
  static const DropoutKernel* const kBuilds[] = {
      &dropout_plain(), &dropout_avx2(), &dropout_avx512()};
  return simd::usable(kBuilds);
}

bool is_dropout_own(const at::Tensor& input, double p) {
  return p > 0 && p < 1 && input.scalar_type() == at::kFloat && input.numel() > 0 &&
         is_readable(input) && input.is_non_overlapping_and_dense();
}

DropoutJob dropout_job(double p, std::uint64_t seed) {
  return {.seed = seed,
      .drop_below = drop_below(p),
      .scale = static_cast<float>(1 / (1 - p)),
      .inputs = nullptr,
      .outputs = nullptr};
}

// By an operator, which a rule may let draw from a stream.
std::uint64_t drawn_dropout_seed() {
  return static_cast<std::uint64_t>(
      at::empty({1}, on_host(at::kLong)).random_().item<std::int64_t>());
}

at::Tensor own_dropout(
    const DropoutKernel& kernel, const at::Tensor& input, double p, std::uint64_t seed) {
  return OwnDropout::apply(input, p, static_cast<std::int64_t>(seed), &kernel);
}

at::Tensor dispatched_dropout(const at::Tensor& input, double p, bool train) {
  const bool is_ours = train && kernels_in_use() != Kernels::kLibTorch && is_dropout_own(input, p);
  if (!is_ours) return at::native::dropout(input, p, train);
  static const DropoutKernel& fastest = *dropout_kernels().back();
  return own_dropout(fastest, input, p, drawn_dropout_seed());
}

}  // namespace lockstep::nn::fused
