#include "lockstep/nn/linear/linear.h"

#include <algorithm>
#include <vector>

#include <ATen/Parallel.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/linear_native.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/matmul_native.h>
#include <ATen/ops/mm.h>
#include <torch/csrc/autograd/custom_function.h>

#include "lockstep/device/gradient_places.h"
#include "lockstep/device/host_tensor.h"
#include "lockstep/nn/in_parallel.h"
#include "lockstep/nn/kernels.h"
#include "lockstep/simd/instructions.h"

namespace lockstep::nn::linear {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// In one piece, as rows or as columns.
bool is_matrix_in_one_piece(const at::Tensor& tensor) {
  return tensor.dim() == 2 && (tensor.is_contiguous() || tensor.t().is_contiguous());
}

bool is_fp32_value(const at::Tensor& tensor) {
  return tensor.scalar_type() == at::kFloat && tensor.numel() > 0 && is_readable(tensor);
}

// [..., K] as [rows, K].
at::Tensor as_rows(const at::Tensor& values) {
  return values.reshape({-1, values.size(-1)}).contiguous();
}

// About half of a gradient behind a ReLU is zero, which a sample shows.
bool has_many_zeros(const at::Tensor& values) {
  constexpr std::int64_t kSample = 1024;
  const float* const numbers = values.const_data_ptr<float>();
  const std::int64_t step = values.numel() / kSample | 1;  // odd: of all columns
  std::int64_t zeros = 0, seen = 0;
  for (std::int64_t i = 0; i < values.numel(); i += step, ++seen) zeros += numbers[i] == 0 ? 1 : 0;
  return 4 * zeros > seen;
}

// Whether as many threads have work as in a dense product; skipping has fewer and larger tasks.
bool is_shared_out(const GemmKernel& skipping, const GemmKernel& dense, const Gemm& gemm) {
  return skipping.tasks(gemm) >= std::min<std::int64_t>(at::get_num_threads(), dense.tasks(gemm));
}

// Without a kernel, this and the gradients are LibTorch's products.
at::Tensor outputs_of(const GemmKernel* kernel, const at::Tensor& input, const at::Tensor& weight,
    const std::optional<at::Tensor>& bias) {
  if (kernel == nullptr) return at::native::linear(input, weight, bias);
  const auto rows = as_rows(input);
  std::vector<std::int64_t> sizes = input.sizes().vec();
  sizes.back() = weight.size(0);
  auto outputs = at::empty(sizes, input.options());
  multiply(*kernel, {.left = view_of(rows),
                        .right = transposed(view_of(weight)),
                        .rows = rows.size(0),
                        .columns = weight.size(0),
                        .inner = weight.size(1),
                        .bias = bias ? bias->const_data_ptr<float>() : nullptr,
                        .products = outputs.mutable_data_ptr<float>(),
                        .product_stride = weight.size(0)});
  return outputs;
}

at::Tensor input_gradient(const GemmKernel* kernel, const at::Tensor& gradient,
    const at::Tensor& weight, at::IntArrayRef sizes) {
  if (kernel == nullptr) return gradient.mm(weight).view(sizes);
  auto result = at::empty(sizes, gradient.options());
  const Gemm gemm{.left = view_of(gradient),
      .right = view_of(weight),
      .rows = gradient.size(0),
      .columns = weight.size(1),
      .inner = weight.size(0),
      .bias = nullptr,
      .products = result.mutable_data_ptr<float>(),
      .product_stride = weight.size(1)};
  multiply(kernel_for(*kernel, gemm, gradient), gemm);
  return result;
}

// It lies as the weight does.
at::Tensor weight_gradient(const GemmKernel* kernel, const at::Tensor& rows,
    const at::Tensor& gradient, const at::Tensor& weight) {
  auto result = empty_gradient(weight);
  const bool is_by_rows = weight.is_contiguous();
  const at::Tensor &left = is_by_rows ? gradient : rows, &right = is_by_rows ? rows : gradient;
  if (kernel == nullptr) {
    at::Tensor to = is_by_rows ? result : result.t();
    at::mm_out(to, left.t(), right);
    return result;
  }
  const Gemm gemm{.left = transposed(view_of(left)),
      .right = view_of(right),
      .rows = left.size(1),
      .columns = right.size(1),
      .inner = rows.size(0),
      .bias = nullptr,
      .products = result.mutable_data_ptr<float>(),
      .product_stride = right.size(1)};
  multiply(kernel_for(*kernel, gemm, left), gemm);
  return result;
}

class OwnLinear : public torch::autograd::Function<OwnLinear> {
 public:
  static at::Tensor forward(AutogradContext* context, const at::Tensor& input,
      const at::Tensor& weight, const std::optional<at::Tensor>& bias, const GemmKernel* kernel) {
    context->save_for_backward({input, weight});
    context->saved_data["has_bias"] = bias.has_value();
    context->saved_data["kernel"] = reinterpret_cast<std::intptr_t>(kernel);
    return outputs_of(kernel, input, weight, bias);
  }

  static variable_list backward(AutogradContext* context, variable_list gradients) {
    const auto saved = context->get_saved_variables();
    const at::Tensor &input = saved[0], &weight = saved[1];
    const bool has_bias = context->saved_data["has_bias"].toBool();
    const auto gradient = as_rows(gradients[0]), rows = as_rows(input);
    at::Tensor of_input, of_weight, of_bias;
    if (has_bias && context->needs_input_grad(2)) of_bias = gradient.sum(0);
    // Of LibTorch's operators, so that they can be differentiated again.
    if (at::GradMode::is_enabled())
      return {gradient.matmul(weight).view(input.sizes()), gradient.t().matmul(rows), of_bias, {}};
    const auto* const kernel =
        reinterpret_cast<const GemmKernel*>(context->saved_data["kernel"].toInt());
    if (context->needs_input_grad(0))
      of_input = input_gradient(kernel, gradient, weight, input.sizes());
    if (context->needs_input_grad(1)) of_weight = weight_gradient(kernel, rows, gradient, weight);
    return {of_input, of_weight, of_bias, {}};
  }
};

at::Tensor linear_by(const GemmKernel* kernel, const LinearCall& call) {
  // An undefined tensor is none for autograd only where it is optional.
  const auto bias = call.bias.defined() ? std::optional(call.bias) : std::nullopt;
  return OwnLinear::apply(call.input, call.weight, bias, kernel);
}

// LibTorch's backward makes a gradient elsewhere, and the place then needs a copy: of a layer of
// 400 MB in each step, which is twice in memory meanwhile.
bool has_place_for_gradient(const LinearCall& call) {
  return at::GradMode::is_enabled() && kernels_in_use() != Kernels::kLibTorch &&
         is_offered_place(call.weight) && is_linear_own(call);
}

// Its rows or its columns have no gaps in them, but perhaps between them.
bool is_readable_matrix(const at::Tensor& tensor) {
  return is_fp32_value(tensor) && tensor.dim() == 2 &&
         (tensor.stride(0) == 1 || tensor.stride(1) == 1);
}

bool is_product_for_own(const at::Tensor& to, const at::Tensor& left, const at::Tensor& right) {
  const Kernels who = kernels_in_use();
  const bool fits = is_fp32_value(to) && to.is_contiguous() && is_readable_matrix(left) &&
                    is_readable_matrix(right);
  return who != Kernels::kLibTorch && fits &&
         (who == Kernels::kOwn ||
             is_linear_faster({.input = left, .weight = right.t(), .bias = {}}));
}

Gemm product_into(
    const at::Tensor& to, const at::Tensor& left, const at::Tensor& right, bool adds) {
  return {.left = view_of(left),
      .right = view_of(right),
      .rows = to.size(0),
      .columns = to.size(1),
      .inner = left.size(1),
      .bias = nullptr,
      .products = to.mutable_data_ptr<float>(),
      .product_stride = to.size(1),
      .adds = adds};
}

}  // namespace

MatrixView view_of(const at::Tensor& matrix) {
  return {matrix.const_data_ptr<float>(), matrix.stride(0), matrix.stride(1)};
}

MatrixView transposed(const MatrixView& view) {
  return {view.data, view.column_stride, view.row_stride};
}

void multiply(const GemmKernel& kernel, const Gemm& gemm) {
  in_parallel(kernel.tasks(gemm), [&](Range tasks) {
    auto scratch = at::empty({kernel.scratch_floats(gemm)}, on_host(at::kFloat));
    kernel.multiply(gemm, tasks, scratch.mutable_data_ptr<float>());
  });
}

const GemmKernel& kernel_for(const GemmKernel& kernel, const Gemm& gemm, const at::Tensor& left) {
  constexpr std::int64_t kFewestColumns = 128;
  const bool fits = gemm.right.column_stride == 1 && gemm.inner <= kMostSkippingDepth &&
                    gemm.columns >= kFewestColumns;
  const bool skips =
      fits && is_shared_out(kernel.skipping_zeros(), kernel, gemm) && has_many_zeros(left);
  return skips ? kernel.skipping_zeros() : kernel;
}

std::span<const GemmKernel* const> gemm_kernels() {
  static const GemmKernel* const kBuilds[] = {&gemm_plain(), &gemm_avx2(), &gemm_avx512()};
  return simd::usable(kBuilds);
}

void add_product(const at::Tensor& sum, const at::Tensor& left, const at::Tensor& right) {
  if (is_product_for_own(sum, left, right))
    multiply(*gemm_kernels().back(), product_into(sum, left, right, /*adds=*/true));
  else if (left.scalar_type() == sum.scalar_type())
    sum.addmm_(left, right);
  else
    sum.add_(at::mm(left, right));
}

void store_product(const at::Tensor& result, const at::Tensor& left, const at::Tensor& right) {
  if (is_product_for_own(result, left, right))
    return multiply(*gemm_kernels().back(), product_into(result, left, right, /*adds=*/false));
  at::Tensor to = result;  // the same memory
  at::mm_out(to, left, right);
}

bool is_linear_own(const LinearCall& call) {
  const bool fits = is_fp32_value(call.input) && is_fp32_value(call.weight) &&
                    call.input.dim() > 0 && is_matrix_in_one_piece(call.weight) &&
                    call.input.size(-1) == call.weight.size(1);
  return fits && (!call.bias.defined() ||
                     (is_fp32_value(call.bias) && call.bias.dim() == 1 &&
                         call.bias.is_contiguous() && call.bias.size(0) == call.weight.size(0)));
}

// MKL has its best loops for Intel's processors alone; only AMD's and Hygon's have SSE4a.
bool are_products_faster() {
  static const bool kAre = simd::has_feature(simd::processor_features(), "sse4a") &&
                           simd::instructions_in_use() != simd::InstructionSet::kPlain;
  return kAre;
}

bool is_linear_faster(const LinearCall& call) {
  // Of a few rows or columns, a panel or a strip is not full.
  constexpr std::int64_t kFewest = 32;
  return are_products_faster() && std::min(call.weight.size(0), call.weight.size(1)) >= kFewest &&
         call.input.numel() >= kFewest * call.weight.size(1);
}

at::Tensor own_linear(const GemmKernel& kernel, const LinearCall& call) {
  return linear_by(&kernel, call);
}

bool is_linear_for_own(const LinearCall& call) {
  const Kernels who = kernels_in_use();
  return who != Kernels::kLibTorch && is_linear_own(call) &&
         (who == Kernels::kOwn || is_linear_faster(call));
}

at::Tensor dispatched_matmul(const at::Tensor& left, const at::Tensor& right) {
  if (left.dim() < 2 || right.dim() != 2 || kernels_in_use() == Kernels::kLibTorch)
    return at::native::matmul(left, right);
  const auto weight = right.t();
  return is_linear_for_own({.input = left, .weight = weight, .bias = {}})
             ? at::linear(left, weight)
             : at::native::matmul(left, right);
}

at::Tensor dispatched_linear(
    const at::Tensor& input, const at::Tensor& weight, const std::optional<at::Tensor>& bias) {
  const LinearCall call{.input = input, .weight = weight, .bias = bias.value_or(at::Tensor())};
  static const GemmKernel& fastest = *gemm_kernels().back();
  if (is_linear_for_own(call)) return own_linear(fastest, call);
  if (has_place_for_gradient(call)) return linear_by(nullptr, call);
  return at::native::linear(input, weight, bias);
}

}  // namespace lockstep::nn::linear
