#pragma once

#include <optional>
#include <span>

#include <ATen/core/Tensor.h>

#include "lockstep/nn/fused/attention_kernel.h"
#include "lockstep/nn/fused/dropout_kernel.h"
#include "lockstep/nn/linear/gemm_kernel.h"

namespace lockstep::nn::fused {

/// Of each weight that a query gives a key, with probability p, by Note [Dropout].
struct AttentionDropout {
  double p = 0;  ///< below 1
  std::uint64_t seed = 0;
};

/// Queries [N, heads, T, size], and keys and values [N, as many or a divisor of them, S, size].
struct AttentionCall {
  const at::Tensor &queries, &keys, &values;
  double scale;           ///< of the scores, above 0
  bool is_causal = true;  ///< a query sees the keys up to its own place, S being T; else all
  AttentionDropout dropout{};
  /// [N, heads, T, S], or undefined: float, which is added to the scaled scores, or bool, which is
  /// false where a query does not see a key. One that sees no key has outputs of zero.
  at::Tensor mask{};
};

/// The kernels of one instruction set.
struct AttentionKernels {
  const AttentionKernel& softmax;
  const DropoutKernel& dropout;
  const linear::GemmKernel& products;
};

/// Returns the kernels that may run, the fastest last.
std::span<const AttentionKernels> attention_kernels();

/// Returns whether the kernels can compute it: not empty, fp32 on the CPU, each vector contiguous,
/// the scale above 0, not all weights dropped, and no mask that needs a gradient, whose rows are
/// not contiguous, or of attention that is causal.
bool is_attention_own(const AttentionCall& call);

/// Returns whether the kernels are also faster: if products are, of heads and sequences that are
/// not small, and of as many heads of keys as there are threads.
bool is_attention_faster(const AttentionCall& call);

/// Returns whether kernels_in_use() says that the kernels compute it.
bool is_attention_for_own(const AttentionCall& call);

/// Computes attention, with the same bits for any number of threads. A backward that is to be
/// differentiated again is LibTorch's.
at::Tensor own_attention(const AttentionKernels& kernels, const AttentionCall& call);

/// Queries, keys and values in one tensor, [N, T, 3, heads, size], as timm's image transformers
/// make them of one linear layer.
struct PackedAttentionCall {
  const at::Tensor& packed;
  double scale;
  bool is_causal;
};

/// Returns whether kernels_in_use() says that the kernels compute it.
bool is_attention_for_own(const PackedAttentionCall& call);

/// Computes the same; the gradient is one tensor, too, which nobody has to put together.
at::Tensor own_attention(const AttentionKernels& kernels, const PackedAttentionCall& call);

/// LibTorch's scaled_dot_product_attention on the CPU, by the kernels where kernels_in_use() says
/// so. Of a dropout these draw only the seed from the generator.
at::Tensor dispatched_attention(const at::Tensor& queries, const at::Tensor& keys,
    const at::Tensor& values, const std::optional<at::Tensor>& mask, double dropout, bool is_causal,
    std::optional<double> scale, bool may_share_heads);

}  // namespace lockstep::nn::fused
