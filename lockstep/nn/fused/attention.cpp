// Note [Attention in blocks]
//
// Of a block of queries all scores are computed at once, [kQueries, keys up to the last of them],
// by the matrix products of linear layers: keys behind the block are not seen, so they cost
// nothing. The softmax is in one piece then. Backward computes the weights again. A thread takes a
// head of the keys, with all heads of queries that share it, so nothing is added up by several
// threads.

#include "lockstep/nn/fused/attention.h"

#include <algorithm>
#include <cmath>
#include <tuple>
#include <vector>

#include <ATen/Parallel.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/_scaled_dot_product_attention_math.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/scaled_dot_product_attention_native.h>
#include <ATen/ops/zeros.h>
#include <torch/csrc/autograd/custom_function.h>

#include "lockstep/device/host_tensor.h"
#include "lockstep/nn/fused/gradients_with_graph.h"
#include "lockstep/nn/in_parallel.h"
#include "lockstep/nn/kernels.h"
#include "lockstep/nn/linear/linear.h"
#include "lockstep/simd/instructions.h"

namespace lockstep::nn::fused {
namespace {

using linear::Gemm;
using linear::MatrixView;
using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

constexpr std::int64_t kQueries = 64;

/// A head's vectors [T, size], to be read or written.
template <typename T>
struct Head {
  T* data;
  std::int64_t stride;

  Head from(std::int64_t token) const { return {data + token * stride, stride}; }
  MatrixView view() const { return {data, stride, 1}; }
};

/// The place of a head in tensors [N, heads, T, size].
struct Place {
  std::int64_t sequence, head;

  std::int64_t in(const at::Tensor& all) const {
    return sequence * all.stride(0) + head * all.stride(1);
  }
  Head<const float> read(const at::Tensor& all) const {
    return {all.const_data_ptr<float>() + in(all), all.stride(2)};
  }
  Head<float> write(const at::Tensor& all) const {
    return {all.mutable_data_ptr<float>() + in(all), all.stride(2)};
  }
};

// Contiguous, so that panels of its columns are copied by rows.
at::Tensor with_tokens_last(const at::Tensor& all, const Place& place) {
  return all.select(0, place.sequence).select(0, place.head).t().contiguous();
}

/// The products and weights of a thread.
class Worker {
 public:
  Worker(const AttentionKernels& kernels, std::int64_t length, float scale)
      : kernels_(kernels),
        scale_(scale),
        numbers_(at::empty({2, kQueries * length}, on_host(at::kFloat))) {}

  /// Computes the weights of some queries, from all of them and the keys, [size, T].
  AttentionBlock weights(
      Range queries, const Head<const float>& all_queries, const at::Tensor& keys) const {
    auto* const numbers = numbers_.mutable_data_ptr<float>();
    const AttentionBlock block{.queries = queries,
        .scale = scale_,
        .weights = numbers,
        .gradients = numbers + numbers_.size(1)};
    by_keys(block, all_queries, keys, block.weights);
    kernels_.softmax.softmax(block);
    return block;
  }

  /// Makes the gradients of the scores of those of the outputs and the values, [size, T].
  void score_gradients(const AttentionBlock& block, const Head<const float>& output_gradients,
      const at::Tensor& values) const {
    by_keys(block, output_gradients, values, block.gradients);
    kernels_.softmax.backward(block);
  }

  /// results of the queries = numbers [queries, keys] x vectors of the keys
  void to_queries(const AttentionBlock& block, const float* numbers,
      const Head<const float>& vectors, std::int64_t size, const Head<float>& results) const {
    const std::int64_t keys = block.queries.end;
    const Head<float> own = results.from(block.queries.begin);
    multiply({.left = {numbers, keys, 1},
        .right = vectors.view(),
        .rows = keys - block.queries.begin,
        .columns = size,
        .inner = keys,
        .bias = nullptr,
        .products = own.data,
        .product_stride = own.stride});
  }

  /// results of the keys += transposed numbers [queries, keys] x vectors of the queries
  void to_keys(const AttentionBlock& block, const float* numbers, const Head<const float>& vectors,
      std::int64_t size, const Head<float>& results) const {
    const std::int64_t keys = block.queries.end;
    multiply({.left = {numbers, 1, keys},
        .right = vectors.from(block.queries.begin).view(),
        .rows = keys,
        .columns = size,
        .inner = keys - block.queries.begin,
        .bias = nullptr,
        .products = results.data,
        .product_stride = results.stride,
        .adds = true});
  }

 private:
  // Vectors of the queries x vectors of the keys up to the last of them.
  void by_keys(const AttentionBlock& block, const Head<const float>& vectors,
      const at::Tensor& of_keys, float* products) const {
    const std::int64_t keys = block.queries.end;
    multiply({.left = vectors.from(block.queries.begin).view(),
        .right = linear::view_of(of_keys),
        .rows = keys - block.queries.begin,
        .columns = keys,
        .inner = of_keys.size(0),
        .bias = nullptr,
        .products = products,
        .product_stride = keys});
  }

  void multiply(const Gemm& gemm) const {
    const linear::GemmKernel& kernel = kernels_.products;
    auto scratch = at::empty({kernel.scratch_floats(gemm)}, on_host(at::kFloat));
    kernel.multiply(gemm, {0, kernel.tasks(gemm)}, scratch.mutable_data_ptr<float>());
  }

  const AttentionKernels& kernels_;
  float scale_;
  at::Tensor numbers_;
};

/// Queries, keys and values; the heads of keys are shared out to threads.
struct Inputs {
  at::Tensor queries, keys, values;
  float scale;

  std::int64_t length() const { return queries.size(2); }

  /// Calls body with the place of each head of keys, and a thread's worker.
  template <typename Body>
  void each_key_head(const AttentionKernels& kernels, const Body& body) const {
    const std::int64_t heads = keys.size(1);
    in_parallel(keys.size(0) * heads, [&](Range tasks) {
      const at::NoGradGuard no_gradients;
      const Worker worker(kernels, length(), scale);
      for (std::int64_t task = tasks.begin; task < tasks.end; ++task)
        body(Place{task / heads, task % heads}, worker);
    });
  }

  /// Calls body with each block of each head of queries that has these keys.
  template <typename Body>
  void each_block(const Place& of_keys, const Body& body) const {
    const std::int64_t sharing = queries.size(1) / keys.size(1);
    for (std::int64_t head = of_keys.head * sharing; head < (of_keys.head + 1) * sharing; ++head)
      for (std::int64_t first = 0; first < length(); first += kQueries)
        body(Place{of_keys.sequence, head}, Range{first, std::min(first + kQueries, length())});
  }
};

// Results lie as [N, T, heads, size], as linear layers take them.
at::Tensor results_like(const at::Tensor& all, bool are_sums = false) {
  const std::vector<std::int64_t> sizes{all.size(0), all.size(2), all.size(1), all.size(3)};
  return (are_sums ? at::zeros(sizes, all.options()) : at::empty(sizes, all.options()))
      .transpose(1, 2);
}

at::Tensor outputs_of(const AttentionKernels& kernels, const Inputs& inputs) {
  auto outputs = results_like(inputs.queries);
  inputs.each_key_head(kernels, [&](const Place& place, const Worker& worker) {
    const at::Tensor keys = with_tokens_last(inputs.keys, place);
    inputs.each_block(place, [&](const Place& query, Range queries) {
      const auto block = worker.weights(queries, query.read(inputs.queries), keys);
      worker.to_queries(
          block, block.weights, place.read(inputs.values), outputs.size(3), query.write(outputs));
    });
  });
  return outputs;
}

/// The inputs whose gradients are asked for.
struct Wanted {
  bool queries, keys, values;
};

/// Gradients of queries, keys and values.
variable_list gradients_of(const AttentionKernels& kernels, const Inputs& inputs,
    const at::Tensor& of_outputs, const Wanted& wanted) {
  at::Tensor of_queries, of_keys, of_values;
  if (wanted.queries) of_queries = results_like(inputs.queries);
  if (wanted.keys) of_keys = results_like(inputs.keys, true);
  if (wanted.values) of_values = results_like(inputs.values, true);
  const std::int64_t size = inputs.queries.size(3);
  inputs.each_key_head(kernels, [&](const Place& place, const Worker& worker) {
    const at::Tensor keys = with_tokens_last(inputs.keys, place),
                     values = with_tokens_last(inputs.values, place);
    inputs.each_block(place, [&](const Place& query, Range queries) {
      const auto output_gradients = query.read(of_outputs),
                 all_queries = query.read(inputs.queries);
      const auto block = worker.weights(queries, all_queries, keys);
      if (wanted.values)
        worker.to_keys(block, block.weights, output_gradients, size, place.write(of_values));
      if (!wanted.queries && !wanted.keys) return;
      worker.score_gradients(block, output_gradients, values);
      if (wanted.keys)
        worker.to_keys(block, block.gradients, all_queries, size, place.write(of_keys));
      if (wanted.queries)
        worker.to_queries(
            block, block.gradients, place.read(inputs.keys), size, query.write(of_queries));
    });
  });
  return {of_queries, of_keys, of_values};
}

at::Tensor with_contiguous_vectors(const at::Tensor& all) {
  return all.stride(3) == 1 ? all : all.contiguous();
}

class OwnAttention : public torch::autograd::Function<OwnAttention> {
 public:
  static at::Tensor forward(AutogradContext* context, const at::Tensor& queries,
      const at::Tensor& keys, const at::Tensor& values, double scale,
      const AttentionKernels* kernels) {
    context->save_for_backward({queries, keys, values});
    context->saved_data["scale"] = scale;
    context->saved_data["kernels"] = reinterpret_cast<std::intptr_t>(kernels);
    return outputs_of(*kernels, {queries, keys, values, static_cast<float>(scale)});
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const auto saved = context->get_saved_variables();
    const double scale = context->saved_data["scale"].toDouble();
    const auto& kernels =
        *reinterpret_cast<const AttentionKernels*>(context->saved_data["kernels"].toInt());
    const Inputs inputs{saved[0], saved[1], saved[2], static_cast<float>(scale)};
    const Wanted wanted{
        context->needs_input_grad(0), context->needs_input_grad(1), context->needs_input_grad(2)};
    auto results = at::GradMode::is_enabled() ? of_libtorch(*context, saved, gradients[0], scale)
                                              : gradients_of(kernels, inputs,
                                                    with_contiguous_vectors(gradients[0]), wanted);
    results.resize(5);
    return results;
  }

 private:
  static variable_list of_libtorch(const AutogradContext& context, const variable_list& saved,
      const at::Tensor& gradient, double scale) {
    const auto output = [&](const variable_list& inputs) {
      return std::get<0>(at::_scaled_dot_product_attention_math(inputs[0], inputs[1], inputs[2],
          /*attn_mask=*/{}, /*dropout_p=*/0, /*is_causal=*/true, /*dropout_mask=*/{}, scale,
          /*enable_gqa=*/true));
    };
    return gradients_with_graph(context, saved, output, gradient);
  }
};

bool has_vectors(const at::Tensor& all) {
  return is_readable(all) && all.dim() == 4 && all.scalar_type() == at::kFloat && all.numel() > 0 &&
         all.stride(3) == 1;
}

}  // namespace

std::span<const AttentionKernels> attention_kernels() {
  static const AttentionKernels kBuilds[] = {{attention_plain(), linear::gemm_plain()},
      {attention_avx2(), linear::gemm_avx2()}, {attention_avx512(), linear::gemm_avx512()}};
  return simd::usable(kBuilds);
}

bool is_attention_own(const AttentionCall& call) {
  const at::Tensor &queries = call.queries, &keys = call.keys;
  return has_vectors(queries) && has_vectors(keys) && has_vectors(call.values) &&
         call.scale > 0 &&  // the largest score has the largest weight
         keys.sizes() == call.values.sizes() && keys.size(0) == queries.size(0) &&
         queries.size(1) % keys.size(1) == 0 && keys.size(2) == queries.size(2) &&
         keys.size(3) == queries.size(3);
}

bool is_attention_faster(const AttentionCall& call) {
  const at::Tensor& keys = call.keys;
  constexpr std::int64_t kFewest = 32;  // as of is_linear_faster()
  return linear::are_products_faster() && std::min(keys.size(2), keys.size(3)) >= kFewest &&
         keys.size(0) * keys.size(1) >= at::get_num_threads();
}

bool is_attention_for_own(const AttentionCall& call) {
  const Kernels who = kernels_in_use();
  return who != Kernels::kLibTorch && is_attention_own(call) &&
         (who == Kernels::kOwn || is_attention_faster(call));
}

at::Tensor own_attention(const AttentionKernels& kernels, const AttentionCall& call) {
  return OwnAttention::apply(call.queries, call.keys, call.values, call.scale, &kernels);
}

at::Tensor dispatched_attention(const at::Tensor& queries, const at::Tensor& keys,
    const at::Tensor& values, const std::optional<at::Tensor>& mask, double dropout, bool is_causal,
    std::optional<double> scale, bool may_share_heads) {
  const bool is_plain = is_causal && dropout == 0 && !(mask && mask->defined());
  if (is_plain && has_vectors(queries)) {
    const AttentionCall call{.queries = queries,
        .keys = keys,
        .values = values,
        .scale = scale.value_or(1 / std::sqrt(static_cast<double>(queries.size(3))))};
    if (is_attention_for_own(call) && (may_share_heads || queries.size(1) == keys.size(1)))
      return own_attention(attention_kernels().back(), call);
  }
  return at::native::scaled_dot_product_attention(
      queries, keys, values, mask, dropout, is_causal, scale, may_share_heads);
}

}  // namespace lockstep::nn::fused
