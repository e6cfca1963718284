#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include <ATen/core/ivalue.h>

namespace lockstep::nn::exported {

// What fused steps of transformers compute (language_fusion.h); each an OwnKernel.

/// input [..., width], weight [width], epsilon.
bool own_rms_norm_step(std::vector<c10::IValue>& stack);

/// gates, values of the same sizes: silu(gates) * values.
bool own_swiglu_step(std::vector<c10::IValue>& stack);

/// heads [N, heads, T, 2 x half], cosines and sines [1, 1, T, 2 x half] whose halves are alike,
/// half.
bool own_rotary_step(std::vector<c10::IValue>& stack);

/// branch, scale [C], residual of the branch's sizes, whether the scale is of the channels of maps:
/// branch * scale + residual.
bool own_layer_scale_step(std::vector<c10::IValue>& stack);

/// The arguments of the step of attention: those of scaled_dot_product_attention, and behind them
/// what the mask lets queries see, and, where keys and values are to be repeated, the sizes to
/// which they are expanded and the shape that they get.
struct AttentionArguments {
  enum : std::size_t {
    kQueries,
    kKeys,
    kValues,
    kMask,
    kDropout,
    kIsCausal,
    kScale,
    kSharesHeads,
    kSeen,
    kExpandedKeys,
    kKeyShape,
    kExpandedValues,
    kValueShape,
    kCount
  };
};
bool own_attention_step(std::vector<c10::IValue>& stack);

/// The arguments of the step of attention without a mask whose queries, keys and values are parts
/// of one tensor: that, the shape [N, T, 3, heads, size] that it gets, and those of
/// scaled_dot_product_attention.
struct PackedAttentionArguments {
  enum : std::size_t { kPacked, kShape, kDropout, kIsCausal, kScale };
};
bool own_packed_attention_step(std::vector<c10::IValue>& stack);

/// The keys that a mask lets each query see: those up to its own place and no others, or all.
enum class Seen : std::int64_t { kOther, kUpToItself, kAll };

/// Returns the Seen of a mask [..., T, S] on the CPU, as a number; kOther where LibTorch is to
/// compute all.
c10::IValue seen_through(std::span<const c10::IValue> arguments);

}  // namespace lockstep::nn::exported
