// Note [Attention in blocks]
//
// Of a block of queries all scores are computed at once, [queries, keys up to the last that they
// see], by the matrix products of linear layers: keys that are not seen cost nothing. The softmax
// is in one piece then. Backward computes the weights again, and which of them are dropped. A
// thread takes a head of the keys, with all heads of queries that share it, so nothing is added up
// by several threads. The last block comes first: it sees all keys, so that their gradients need no
// zeros.

#include "lockstep/nn/fused/attention.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <tuple>

#include <ATen/ExpandUtils.h>
#include <ATen/Parallel.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/_scaled_dot_product_attention_math.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/scaled_dot_product_attention_native.h>
#include <ATen/ops/zeros.h>
#include <torch/csrc/autograd/custom_function.h>

#include "lockstep/device/host_tensor.h"
#include "lockstep/nn/fused/dropout.h"
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

/// A head's vectors [T, size], to be read or written.
template <typename T>
struct Head {
  T* data;
  std::int64_t stride;

  Head from(std::int64_t token) const { return {data + token * stride, stride}; }
  MatrixView rows() const { return {data, stride, 1}; }
  MatrixView columns() const { return {data, 1, stride}; }
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

/// The settings of a call.
struct Settings {
  double scale;
  bool is_causal;
  AttentionDropout dropout{};
};

/// Queries, keys and values; the heads of keys are shared out to threads.
struct Inputs {
  at::Tensor queries, keys, values;
  Settings settings;
  at::Tensor mask{};  ///< [N, heads, T, S], or undefined

  std::int64_t size() const { return queries.size(3); }
  std::int64_t key_count() const { return keys.size(2); }
  std::int64_t sharing() const { return queries.size(1) / keys.size(1); }

  // Behind smaller blocks there are more keys that are not seen.
  std::int64_t blocks() const {
    const std::int64_t most = settings.is_causal ? 64 : 96;
    return (queries.size(2) + most - 1) / most;
  }
  std::int64_t largest_block() const { return (queries.size(2) + blocks() - 1) / blocks(); }

  static std::int64_t stride_of(std::int64_t keys) {
    return (keys + kAttentionStride - 1) / kAttentionStride * kAttentionStride;
  }

  // What all queries of the largest block by all keys have.
  std::int64_t most_numbers() const { return largest_block() * stride_of(key_count()); }

  AttentionBlock block(std::int64_t number) const {
    const std::int64_t length = queries.size(2);
    const Range range{length * number / blocks(), length * (number + 1) / blocks()};
    const std::int64_t seen = settings.is_causal ? range.end : key_count();
    return {.queries = range,
        .keys = seen,
        .is_causal = settings.is_causal,
        .scale = static_cast<float>(settings.scale),
        .stride = stride_of(seen),
        .weights = nullptr,
        .dropped = nullptr,
        .gradients = nullptr};
  }
};

/// The products and weights of a thread.
class Worker {
 public:
  Worker(const AttentionKernels& kernels, const Inputs& inputs)
      : kernels_(kernels),
        inputs_(inputs),
        numbers_(at::empty({3, inputs.most_numbers()}, on_host(at::kFloat))) {}

  /// Computes a block's weights, before and behind the dropout.
  void compute_weights(AttentionBlock& block, const Place& query, const Place& key) const {
    block.weights = block.dropped = numbers_.mutable_data_ptr<float>();
    by_keys(block, query.read(inputs_.queries), key.read(inputs_.keys), block.weights);
    inputs_.mask.defined() ? softmax_of_masked(block, query) : kernels_.softmax.softmax(block);
    if (inputs_.settings.dropout.p > 0) drop(block, query);
  }

  /// Makes the gradients of the scores of those of the outputs and the values.
  void compute_score_gradients(AttentionBlock& block, const Head<const float>& output_gradients,
      const Head<const float>& values) const {
    block.gradients = block.weights + 2 * numbers_.size(1);
    by_keys(block, output_gradients, values, block.gradients);
    kernels_.softmax.backward(block);
  }

  /// results of the queries = numbers [queries, keys] x vectors of the keys
  void to_queries(const AttentionBlock& block, const float* numbers,
      const Head<const float>& vectors, const Head<float>& results) const {
    const Head<float> own = results.from(block.queries.begin);
    multiply({.left = {numbers, block.stride, 1},
        .right = vectors.rows(),
        .rows = rows_of(block),
        .columns = inputs_.size(),
        .inner = block.keys,
        .bias = nullptr,
        .products = own.data,
        .product_stride = own.stride});
  }

  /// results of the keys = transposed numbers [queries, keys] x vectors of the queries, or +=
  void to_keys(const AttentionBlock& block, const float* numbers, const Head<const float>& vectors,
      const Head<float>& results, bool adds) const {
    multiply({.left = {numbers, 1, block.stride},
        .right = vectors.from(block.queries.begin).rows(),
        .rows = block.keys,
        .columns = inputs_.size(),
        .inner = rows_of(block),
        .bias = nullptr,
        .products = results.data,
        .product_stride = results.stride,
        .adds = adds});
  }

 private:
  static std::int64_t rows_of(const AttentionBlock& block) {
    return block.queries.end - block.queries.begin;
  }

  void softmax_of_masked(AttentionBlock block, const Place& query) const {
    const at::Tensor& mask = inputs_.mask;
    const std::int64_t first = query.in(mask) + block.queries.begin * mask.stride(2);
    const auto* const bytes = static_cast<const std::uint8_t*>(mask.const_data_ptr());
    kernels_.softmax.mask(
        block, {.rows = bytes + first * static_cast<std::int64_t>(mask.element_size()),
                   .stride = mask.stride(2),
                   .is_bool = mask.scalar_type() == at::kBool});
    block.scale = 1;
    kernels_.softmax.softmax(block);
  }

  // The weights of a query begin in a block of their own, so that they are drawn by their places in
  // [N, heads, T, keys], whatever the blocks of queries are.
  void drop(AttentionBlock& block, const Place& query) const {
    const at::Tensor& queries = inputs_.queries;
    const std::int64_t head = query.sequence * queries.size(1) + query.head;
    const std::int64_t first = head * queries.size(2) + block.queries.begin;
    block.dropped = block.weights + numbers_.size(1);
    DropoutJob job = dropout_job(inputs_.settings.dropout.p, inputs_.settings.dropout.seed);
    for (std::int64_t row = 0; row < rows_of(block); ++row) {
      job.inputs = block.weights + row * block.stride;
      job.outputs = block.dropped + row * block.stride;
      job.blocks_before = (first + row) * dropout_blocks(inputs_.key_count());
      kernels_.dropout.drop(job, {0, dropout_blocks(block.keys)}, block.keys);
    }
  }

  // Vectors of the queries x vectors of the keys that they see.
  void by_keys(const AttentionBlock& block, const Head<const float>& vectors,
      const Head<const float>& of_keys, float* products) const {
    multiply({.left = vectors.from(block.queries.begin).rows(),
        .right = of_keys.columns(),
        .rows = rows_of(block),
        .columns = block.keys,
        .inner = inputs_.size(),
        .bias = nullptr,
        .products = products,
        .product_stride = block.stride});
  }

  void multiply(const Gemm& gemm) const {
    const linear::GemmKernel& kernel = kernels_.products;
    auto scratch = at::empty({kernel.scratch_floats(gemm)}, on_host(at::kFloat));
    kernel.multiply(gemm, {0, kernel.tasks(gemm)}, scratch.mutable_data_ptr<float>());
  }

  const AttentionKernels& kernels_;
  const Inputs& inputs_;
  at::Tensor numbers_;  // weights, those behind the dropout, gradients
};

// Calls body with the place of each head of keys, and a thread's worker.
template <typename Body>
void each_key_head(const Inputs& inputs, const AttentionKernels& kernels, const Body& body) {
  const std::int64_t heads = inputs.keys.size(1);
  in_parallel(inputs.keys.size(0) * heads, [&](Range tasks) {
    const Worker worker(kernels, inputs);
    for (std::int64_t task = tasks.begin; task < tasks.end; ++task)
      body(Place{task / heads, task % heads}, worker);
  });
}

// Calls body with the place of each head of queries that has these keys, each block of it, the last
// one first, and whether that is the first of all.
template <typename Body>
void each_block(const Inputs& inputs, const Place& of_keys, const Body& body) {
  const std::int64_t sharing = inputs.sharing(), last = inputs.blocks() - 1;
  for (std::int64_t head = 0; head < sharing; ++head)
    for (std::int64_t number = last; number >= 0; --number)
      body(Place{of_keys.sequence, of_keys.head * sharing + head}, inputs.block(number),
          head == 0 && number == last);
}

// As LibTorch's do: results lie as what they belong to, [N, heads, T, size] or [N, T, heads, size].
at::Tensor results_like(const at::Tensor& all) {
  auto results = at::empty_like(all);
  return results.stride(3) == 1 ? results : at::empty(all.sizes(), all.options());
}

at::Tensor outputs_of(const AttentionKernels& kernels, const Inputs& inputs) {
  auto outputs = results_like(inputs.queries);
  each_key_head(inputs, kernels, [&](const Place& place, const Worker& worker) {
    each_block(inputs, place, [&](const Place& query, AttentionBlock block, bool) {
      worker.compute_weights(block, query, place);
      worker.to_queries(block, block.dropped, place.read(inputs.values), query.write(outputs));
    });
  });
  return outputs;
}

/// Where the gradients of queries, keys and values go; undefined if nobody asks for them.
struct Gradients {
  at::Tensor queries, keys, values;
};

void compute_gradients(const AttentionKernels& kernels, const Inputs& inputs,
    const at::Tensor& of_outputs, const Gradients& results) {
  each_key_head(inputs, kernels, [&](const Place& place, const Worker& worker) {
    const auto keys = place.read(inputs.keys), values = place.read(inputs.values);
    each_block(inputs, place, [&](const Place& query, AttentionBlock block, bool is_first) {
      const auto of_output = query.read(of_outputs), queries = query.read(inputs.queries);
      worker.compute_weights(block, query, place);
      if (results.values.defined())
        worker.to_keys(block, block.dropped, of_output, place.write(results.values), !is_first);
      if (!results.queries.defined() && !results.keys.defined()) return;
      worker.compute_score_gradients(block, of_output, values);
      if (results.keys.defined())
        worker.to_keys(block, block.gradients, queries, place.write(results.keys), !is_first);
      if (results.queries.defined())
        worker.to_queries(block, block.gradients, keys, query.write(results.queries));
    });
  });
}

at::Tensor with_contiguous_vectors(const at::Tensor& all) {
  return all.stride(3) == 1 ? all : all.contiguous();
}

void save(AutogradContext& context, const Settings& settings, const AttentionKernels& kernels) {
  context.saved_data["scale"] = settings.scale;
  context.saved_data["is_causal"] = settings.is_causal;
  context.saved_data["dropout"] = settings.dropout.p;
  context.saved_data["seed"] = static_cast<std::int64_t>(settings.dropout.seed);
  context.saved_data["kernels"] = reinterpret_cast<std::intptr_t>(&kernels);
}

Settings saved_settings(const AutogradContext& context) {
  const auto& data = context.saved_data;
  return {.scale = data.at("scale").toDouble(),
      .is_causal = data.at("is_causal").toBool(),
      .dropout = {.p = data.at("dropout").toDouble(),
          .seed = static_cast<std::uint64_t>(data.at("seed").toInt())}};
}

const AttentionKernels& saved_kernels(const AutogradContext& context) {
  return *reinterpret_cast<const AttentionKernels*>(context.saved_data.at("kernels").toInt());
}

// By what each weight of [N, heads, T, keys] is multiplied.
at::Tensor dropout_factors(const at::Tensor& weights, const AttentionDropout& dropout) {
  auto sizes = weights.sizes().vec();
  sizes.back() = dropout_blocks(sizes.back()) * kDropoutBlock;
  const auto ones = at::ones(sizes, weights.options());
  return own_dropout(*dropout_kernels().back(), ones, dropout.p, dropout.seed)
      .narrow(3, 0, weights.size(3));
}

// The mask that is added, or none.
std::optional<at::Tensor> added_mask(const at::Tensor& mask) {
  if (!mask.defined()) return std::nullopt;
  if (mask.scalar_type() == at::kFloat) return mask;
  return at::zeros({}, on_host(at::kFloat))
      .masked_fill(mask.logical_not(), -std::numeric_limits<float>::infinity());
}

// So that it can be differentiated again.
at::Tensor attention_of_operators(const at::Tensor& queries, const at::Tensor& keys,
    const at::Tensor& values, const at::Tensor& mask, const Settings& settings) {
  const auto [outputs, weights] = at::_scaled_dot_product_attention_math(queries, keys, values,
      added_mask(mask), /*dropout_p=*/0, settings.is_causal, /*dropout_mask=*/{}, settings.scale,
      /*enable_gqa=*/true);
  if (settings.dropout.p == 0) return outputs;
  const auto kept = weights.mul(dropout_factors(weights, settings.dropout));
  return kept.matmul(values.repeat_interleave(queries.size(1) / values.size(1), 1));
}

class OwnAttention : public torch::autograd::Function<OwnAttention> {
 public:
  static at::Tensor forward(AutogradContext* context, const at::Tensor& queries,
      const at::Tensor& keys, const at::Tensor& values, const std::optional<at::Tensor>& mask,
      const Settings& settings, const AttentionKernels* kernels) {
    context->save_for_backward({queries, keys, values, mask.value_or(at::Tensor())});
    save(*context, settings, *kernels);
    return outputs_of(*kernels, {queries, keys, values, settings, mask.value_or(at::Tensor())});
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const auto saved = context->get_saved_variables();
    const Settings settings = saved_settings(*context);
    if (at::GradMode::is_enabled()) {
      const auto output = [&](const variable_list& all) {
        return attention_of_operators(all[0], all[1], all[2], saved[3], settings);
      };
      auto results =
          gradients_with_graph(*context, {saved[0], saved[1], saved[2]}, output, gradients[0]);
      results.resize(6);
      return results;
    }
    Gradients results;
    if (context->needs_input_grad(0)) results.queries = results_like(saved[0]);
    if (context->needs_input_grad(1)) results.keys = results_like(saved[1]);
    if (context->needs_input_grad(2)) results.values = results_like(saved[2]);
    compute_gradients(saved_kernels(*context), {saved[0], saved[1], saved[2], settings, saved[3]},
        with_contiguous_vectors(gradients[0]), results);
    return {results.queries, results.keys, results.values, {}, {}, {}};
  }
};

// One of the three tensors [N, heads, T, size] in [N, T, 3, heads, size].
at::Tensor unpacked(const at::Tensor& packed, std::int64_t which) {
  return packed.select(2, which).transpose(1, 2);
}

class OwnPackedAttention : public torch::autograd::Function<OwnPackedAttention> {
 public:
  static at::Tensor forward(AutogradContext* context, const at::Tensor& packed,
      const Settings& settings, const AttentionKernels* kernels) {
    context->save_for_backward({packed});
    save(*context, settings, *kernels);
    return outputs_of(*kernels, inputs_of(packed, settings));
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const auto packed = context->get_saved_variables().front();
    const Settings settings = saved_settings(*context);
    if (at::GradMode::is_enabled()) {
      const auto output = [&](const variable_list& all) {
        return attention_of_operators(
            unpacked(all[0], 0), unpacked(all[0], 1), unpacked(all[0], 2), {}, settings);
      };
      auto results = gradients_with_graph(*context, {packed}, output, gradients[0]);
      results.resize(3);
      return results;
    }
    const auto result = at::empty(packed.sizes(), packed.options());
    compute_gradients(saved_kernels(*context), inputs_of(packed, settings),
        with_contiguous_vectors(gradients[0]),
        {unpacked(result, 0), unpacked(result, 1), unpacked(result, 2)});
    return {result, {}, {}};
  }

 private:
  static Inputs inputs_of(const at::Tensor& packed, const Settings& settings) {
    return {unpacked(packed, 0), unpacked(packed, 1), unpacked(packed, 2), settings};
  }
};

bool has_vectors(const at::Tensor& all) {
  return is_readable(all) && all.dim() == 4 && all.scalar_type() == at::kFloat && all.numel() > 0 &&
         all.stride(3) == 1;
}

std::array<std::int64_t, 4> sizes_of_scores(const at::Tensor& queries, const at::Tensor& keys) {
  return {queries.size(0), queries.size(1), queries.size(2), keys.size(2)};
}

bool is_mask_own(const AttentionCall& call) {
  const at::Tensor& mask = call.mask;
  if (!mask.defined()) return true;
  return !call.is_causal && is_readable(mask) &&
         mask.sizes() == at::IntArrayRef(sizes_of_scores(call.queries, call.keys)) &&
         mask.stride(3) == 1 &&
         (mask.scalar_type() == at::kBool || mask.scalar_type() == at::kFloat) &&
         !(mask.requires_grad() && at::GradMode::is_enabled());
}

// A mask [..., T, S] spread over all sequences and heads, if it can be.
at::Tensor spread(const at::Tensor& mask, const at::Tensor& queries, const at::Tensor& keys) {
  const auto sizes = sizes_of_scores(queries, keys);
  if (!is_readable(mask) || mask.dim() < 2 || !at::is_expandable_to(mask.sizes(), sizes))
    return mask;
  return (mask.stride(-1) == 1 ? mask : mask.contiguous()).expand(sizes);
}

}  // namespace

std::span<const AttentionKernels> attention_kernels() {
  static const AttentionKernels kBuilds[] = {
      {attention_plain(), dropout_plain(), linear::gemm_plain()},
      {attention_avx2(), dropout_avx2(), linear::gemm_avx2()},
      {attention_avx512(), dropout_avx512(), linear::gemm_avx512()}};
  return simd::usable(kBuilds);
}

bool is_attention_own(const AttentionCall& call) {
  const at::Tensor &queries = call.queries, &keys = call.keys;
  return has_vectors(queries) && has_vectors(keys) && has_vectors(call.values) &&
         call.scale > 0 &&  // the largest score has the largest weight
         call.dropout.p >= 0 && call.dropout.p < 1 && keys.sizes() == call.values.sizes() &&
         keys.size(0) == queries.size(0) && queries.size(1) % keys.size(1) == 0 &&
         keys.size(3) == queries.size(3) && (!call.is_causal || keys.size(2) == queries.size(2)) &&
         is_mask_own(call);
}

bool is_attention_faster(const AttentionCall& call) {
  const at::Tensor& keys = call.keys;
  constexpr std::int64_t kFewestKeys = 16, kShortest = 32;
  return linear::are_products_faster() && keys.size(3) >= kShortest &&
         std::min(call.queries.size(2), keys.size(2)) >= kFewestKeys &&
         keys.size(0) * keys.size(1) >= at::get_num_threads();
}

bool is_attention_for_own(const AttentionCall& call) {
  const Kernels who = kernels_in_use();
  return who != Kernels::kLibTorch && is_attention_own(call) &&
         (who == Kernels::kOwn || is_attention_faster(call));
}

at::Tensor own_attention(const AttentionKernels& kernels, const AttentionCall& call) {
  const Settings settings{call.scale, call.is_causal, call.dropout};
  const auto mask = call.mask.defined() ? std::optional(call.mask) : std::nullopt;
  return OwnAttention::apply(call.queries, call.keys, call.values, mask, settings, &kernels);
}

bool is_attention_for_own(const PackedAttentionCall& call) {
  const auto& packed = call.packed;
  if (packed.dim() != 5 || packed.size(2) != 3) return false;
  const at::NoGradGuard no_gradients;
  const auto queries = unpacked(packed, 0), keys = unpacked(packed, 1),
             values = unpacked(packed, 2);
  return is_attention_for_own({.queries = queries,
      .keys = keys,
      .values = values,
      .scale = call.scale,
      .is_causal = call.is_causal});
}

at::Tensor own_attention(const AttentionKernels& kernels, const PackedAttentionCall& call) {
  return OwnPackedAttention::apply(call.packed, Settings{call.scale, call.is_causal, {}}, &kernels);
}

at::Tensor dispatched_attention(const at::Tensor& queries, const at::Tensor& keys,
    const at::Tensor& values, const std::optional<at::Tensor>& mask, double dropout, bool is_causal,
    std::optional<double> scale, bool may_share_heads) {
  const bool has_mask = mask && mask->defined();
  if (has_vectors(queries) && keys.dim() == 4) {
    AttentionCall call{.queries = queries,
        .keys = keys,
        .values = values,
        .scale = scale.value_or(1 / std::sqrt(static_cast<double>(queries.size(3)))),
        .is_causal = is_causal,
        .dropout = {.p = dropout},
        .mask = has_mask ? spread(*mask, queries, keys) : at::Tensor()};
    if (is_attention_for_own(call) && (may_share_heads || queries.size(1) == keys.size(1))) {
      if (dropout > 0) call.dropout.seed = drawn_dropout_seed();
      return own_attention(attention_kernels().back(), call);
    }
  }
  return at::native::scaled_dot_product_attention(
      queries, keys, values, mask, dropout, is_causal, scale, may_share_heads);
}

}  // namespace lockstep::nn::fused
