#include "lockstep/nn/exported/language_kernels.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>

#include <ATen/autocast_mode.h>
#include <ATen/ops/result_type.h>
#include <ATen/ops/scaled_dot_product_attention.h>
#include <ATen/record_function.h>

#include "lockstep/nn/fused/attention.h"
#include "lockstep/nn/fused/layer_scale.h"
#include "lockstep/nn/fused/rms_norm.h"
#include "lockstep/nn/fused/rotary.h"
#include "lockstep/nn/fused/swiglu.h"
#include "lockstep/nn/in_parallel.h"
#include "lockstep/nn/kernels.h"

namespace lockstep::nn::exported {
namespace {

using at::Tensor;
using c10::IValue;

using Reported = c10::ArrayRef<const IValue>;  // for profiles: LibTorch reports its own operators

bool is_for_libtorch() { return kernels_in_use() == Kernels::kLibTorch; }

// [1, 1, T, size]
bool are_angles(const Tensor& values, const Tensor& heads) {
  const bool is_float = values.scalar_type() == at::kFloat || values.scalar_type() == at::kBFloat16;
  return is_float && is_readable(values) && !values.requires_grad() && values.dim() == 4 &&
         values.size(0) == 1 && values.size(1) == 1 && values.size(2) == heads.size(2) &&
         values.size(3) == heads.size(3);
}

Tensor first_half(const Tensor& angles) {
  return angles[0][0].narrow(1, 0, angles.size(3) / 2).to(at::kFloat);
}

/// Keys, or values, as the program has them, and how it repeats them.
struct Shared {
  const Tensor& heads;  ///< [N, heads, T, size]
  const IValue &expanded, &shape;

  bool is_repeated() const { return !shape.isNone(); }

  /// Returns how often each head is repeated; 0 if that is not what the sizes say.
  std::int64_t times() const {
    const auto sizes = heads.sizes();
    if (sizes.size() != 4) return 0;
    const auto to = expanded.toIntVector(), made = shape.toIntVector();
    if (to.size() != 5 || to[2] < 1) return 0;
    const auto keeps = [](std::int64_t size, std::int64_t wanted) {
      return wanted == -1 || wanted == size;
    };
    const std::vector<std::int64_t> repeated = {sizes[0], sizes[1] * to[2], sizes[2], sizes[3]};
    const bool fits = keeps(sizes[0], to[0]) && keeps(sizes[1], to[1]) && keeps(sizes[2], to[3]) &&
                      keeps(sizes[3], to[4]) &&
                      std::equal(repeated.begin(), repeated.end(), made.begin(), made.end(), keeps);
    return fits ? to[2] : 0;
  }

  Tensor repeated() const {
    return heads.unsqueeze(2).expand(expanded.toIntVector()).reshape(shape.toIntVector());
  }
};

bool is_autocast() { return at::autocast::is_autocast_enabled(at::kCPU); }

// One of a single place would be spread over all, and one of many sequences spreads a single one.
bool fits(const Tensor& mask, const Tensor& queries, const Tensor& keys) {
  if (queries.dim() != 4 || keys.dim() != 4 || mask.dim() > 4) return false;
  for (std::int64_t dim = 3; dim <= mask.dim(); ++dim)
    if (mask.size(-dim) != 1 && mask.size(-dim) != queries.size(-dim)) return false;
  return mask.size(-2) == queries.size(2) && mask.size(-1) == keys.size(2);
}

// What a step's queries see, by its mask or without one.
Seen seen_by_queries(const std::vector<IValue>& stack) {
  using Of = AttentionArguments;
  if (stack[Of::kMask].isNone())
    return stack[Of::kIsCausal].toBool() ? Seen::kUpToItself : Seen::kAll;
  const auto seen = static_cast<Seen>(stack[Of::kSeen].toInt());
  const bool is_known =
      seen != Seen::kOther && fits(stack[Of::kMask].toTensor(), stack[Of::kQueries].toTensor(),
                                  stack[Of::kKeys].toTensor());
  return is_known ? seen : Seen::kOther;
}

// Each row is a stretch of ones and zeros that begins one place before that of the row above.
bool is_causal(const std::uint8_t* rows, std::size_t count, std::size_t size) {
  std::vector<std::uint8_t> pattern(2 * size, 0);
  std::fill_n(pattern.begin(), size, std::uint8_t{1});
  for (std::size_t i = 0; i < count; ++i)
    if (std::memcmp(rows + i * size, pattern.data() + size - 1 - i % size, size) != 0) return false;
  return true;
}

}  // namespace

bool own_rms_norm_step(std::vector<IValue>& stack) {
  const Tensor &input = stack[0].toTensor(), &weight = stack[1].toTensor();
  if (is_for_libtorch() || !fused::is_rms_norm_own(input, weight)) return false;
  RECORD_FUNCTION("lockstep::rms_norm", Reported({input, weight}));
  static const fused::RmsNormKernel& fastest = *fused::rms_norm_kernels().back();
  auto result = fused::own_rms_norm(fastest, input, weight, stack[2].toDouble());
  stack.assign({std::move(result)});
  return true;
}

bool own_swiglu_step(std::vector<IValue>& stack) {
  const Tensor &gates = stack[0].toTensor(), &values = stack[1].toTensor();
  if (is_for_libtorch() || !fused::is_swiglu_own(gates, values)) return false;
  RECORD_FUNCTION("lockstep::swiglu", Reported({gates, values}));
  static const fused::SwigluKernel& fastest = *fused::swiglu_kernels().back();
  auto result = fused::own_swiglu(fastest, gates, values);
  stack.assign({std::move(result)});
  return true;
}

bool own_layer_scale_step(std::vector<IValue>& stack) {
  const fused::LayerScaleCall call{.input = stack[0].toTensor(),
      .scale = stack[1].toTensor(),
      .residual = stack[2].toTensor(),
      .is_of_maps = stack[3].toBool()};
  if (is_for_libtorch() || !fused::is_layer_scale_own(call)) return false;
  RECORD_FUNCTION("lockstep::layer_scale", Reported({call.input, call.scale, call.residual}));
  static const fused::LayerScaleKernel& fastest = *fused::layer_scale_kernels().back();
  auto result = fused::own_layer_scale(fastest, call);
  stack.assign({std::move(result)});
  return true;
}

bool own_rotary_step(std::vector<IValue>& stack) {
  const Tensor &heads = stack[0].toTensor(), &cosines = stack[1].toTensor(),
               &sines = stack[2].toTensor();
  if (is_for_libtorch() || heads.dim() != 4 || heads.size(3) != 2 * stack[3].toInt() ||
      !are_angles(cosines, heads) || !are_angles(sines, heads))
    return false;
  // As products are of the type to which their factors are promoted.
  const Tensor turned = heads.to(at::result_type(heads, cosines)).transpose(1, 2);
  if (!fused::is_rotary_own(turned) || cosines.scalar_type() != sines.scalar_type()) return false;
  RECORD_FUNCTION("lockstep::rotary", Reported({heads, cosines, sines}));
  static const fused::RotaryKernel& fastest = *fused::rotary_kernels().back();
  const Tensor cosine = first_half(cosines), sine = first_half(sines);
  auto result = fused::own_rotary(fastest, turned, {cosine, sine}).transpose(1, 2);
  stack.assign({std::move(result)});
  return true;
}

// Without a mask LibTorch, too, leaves out what is not seen, and the mask. Shared heads stay as
// they are where our kernel takes them: LibTorch repeats them anyway.
bool own_attention_step(std::vector<IValue>& stack) {
  using Of = AttentionArguments;
  const Seen seen = seen_by_queries(stack);
  if (is_for_libtorch() || seen == Seen::kOther) return false;
  const bool is_causal = seen == Seen::kUpToItself;
  const double dropout = stack[Of::kDropout].toDouble();
  const Tensor& queries = stack[Of::kQueries].toTensor();
  const Shared keys{stack[Of::kKeys].toTensor(), stack[Of::kExpandedKeys], stack[Of::kKeyShape]};
  const Shared values{
      stack[Of::kValues].toTensor(), stack[Of::kExpandedValues], stack[Of::kValueShape]};
  const auto scale = stack[Of::kScale].toOptional<double>();
  bool shares = stack[Of::kSharesHeads].toBool();
  Tensor key_heads = keys.heads, value_heads = values.heads;
  if (keys.is_repeated()) {
    const std::int64_t times = keys.times();
    if (times == 0 || values.times() != times || queries.dim() != 4 ||
        queries.size(1) != times * key_heads.size(1))
      return false;
    const fused::AttentionCall call{.queries = queries,
        .keys = key_heads,
        .values = value_heads,
        .scale = scale.value_or(1 / std::sqrt(static_cast<double>(queries.size(3)))),
        .is_causal = is_causal,
        .dropout = {.p = dropout}};
    shares = !is_autocast() && fused::is_attention_for_own(call);
    if (!shares && stack[Of::kMask].isNone()) return false;
    if (!shares) {
      key_heads = keys.repeated();
      value_heads = values.repeated();
    }
  }
  RECORD_FUNCTION("lockstep::attention", Reported({queries, key_heads, value_heads}));
  auto result = at::scaled_dot_product_attention(
      queries, key_heads, value_heads, {}, dropout, is_causal, scale, shares);
  stack.assign({std::move(result)});
  return true;
}

bool own_packed_attention_step(std::vector<IValue>& stack) {
  using Of = PackedAttentionArguments;
  const Tensor& given = stack[Of::kPacked].toTensor();
  const auto shape = stack[Of::kShape].toIntVector();
  if (is_for_libtorch() || is_autocast() || stack[Of::kDropout].toDouble() != 0 ||
      shape.size() != 5)
    return false;
  const Tensor packed = given.reshape(shape);
  const auto scale = stack[Of::kScale].toOptional<double>();
  const fused::PackedAttentionCall call{.packed = packed,
      .scale = scale.value_or(1 / std::sqrt(static_cast<double>(packed.size(4)))),
      .is_causal = stack[Of::kIsCausal].toBool()};
  if (!fused::is_attention_for_own(call)) return false;
  RECORD_FUNCTION("lockstep::packed_attention", Reported({packed}));
  auto result = fused::own_attention(fused::attention_kernels().back(), call);
  stack.assign({std::move(result)});
  return true;
}

IValue seen_through(std::span<const IValue> arguments) {
  const auto answer = [](Seen seen) { return IValue(static_cast<std::int64_t>(seen)); };
  const Tensor& mask = arguments[0].toTensor();
  if (is_for_libtorch() || mask.scalar_type() != at::kBool || !is_readable(mask) ||
      mask.dim() < 2 || mask.numel() == 0)
    return answer(Seen::kOther);
  Tensor each = mask;  // but not what is spread over sequences and heads
  for (std::int64_t dim = 0; dim < mask.dim() - 2; ++dim)
    if (mask.stride(dim) == 0) each = each.narrow(dim, 0, 1);
  const Tensor all = each.contiguous().view({-1});
  const std::span rows(static_cast<const std::uint8_t*>(all.const_data_ptr()),
      static_cast<std::size_t>(all.numel()));
  const auto size = static_cast<std::size_t>(mask.size(-1));
  if (std::ranges::all_of(rows, [](std::uint8_t place) { return place != 0; }))
    return answer(Seen::kAll);
  const bool is_square = mask.size(-1) == mask.size(-2);
  return answer(is_square && is_causal(rows.data(), rows.size() / size, size) ? Seen::kUpToItself
                                                                              : Seen::kOther);
}

}  // namespace lockstep::nn::exported
