#include "lockstep/nn/models/language/token_loss.h"

#include <algorithm>
#include <limits>
#include <utility>

#include <ATen/autocast_mode.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/constant_pad_nd.h>
#include <ATen/ops/cross_entropy_loss.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/log_softmax.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>
#include <torch/csrc/autograd/custom_function.h>

#include "lockstep/core/error.h"
#include "lockstep/nn/fused/cross_entropy.h"
#include "lockstep/nn/kernels.h"
#include "lockstep/nn/linear/linear.h"
#include "lockstep/nn/models/language/language_layers.h"

namespace lockstep::nn {
namespace {

using torch::Tensor;
using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

/// The place of scores that are not computed. Its backward is never asked for.
struct DeferredScores : torch::autograd::Function<DeferredScores> {
  static Tensor forward(AutogradContext* context, const Tensor& hidden, const Tensor& weight) {
    context->save_for_backward({hidden, weight});
    return at::empty({hidden.size(0), hidden.size(1), 0}, hidden.options());
  }

  static variable_list backward(AutogradContext*, const variable_list&) {
    throw Error("deferred scores have no gradient: their loss is chunked_cross_entropy()");
  }
};

// Some 64 MB of scores in float, 256 MB on a device. The weight is read for each chunk, and its
// gradient written: few rows are slow to multiply.
std::int64_t rows_of_chunk(const Tensor& weight) {
  constexpr std::int64_t kOfCpu = 1 << 24, kOfDevice = 1 << 26, kLeast = 64;
  return std::max(kLeast, (weight.is_cpu() ? kOfCpu : kOfDevice) / weight.size(0));
}

// GPUs multiply several times slower by matrices whose rows begin anywhere, as those of 50257
// scores.
std::int64_t words_to_multiply(const Tensor& weight) {
  constexpr std::int64_t kAligned = 64;
  return weight.is_cpu() ? weight.size(0) : (weight.size(0) + kAligned - 1) / kAligned * kAligned;
}

/// The weight as chunks are multiplied by it: of another type, and with rows of zeros for words
/// that there are not.
struct WordFactor {
  WordFactor(const Tensor& weight, torch::ScalarType type)
      : words(weight.size(0)), more(words_to_multiply(weight) - words), rows(weight.to(type)) {
    if (more > 0) rows = at::constant_pad_nd(rows, {0, 0, 0, more});
  }

  // Words that there are not have no share in the softmax.
  Tensor scores(const Tensor& chunk) const {
    Tensor all = at::linear(chunk, rows);
    if (more > 0) all.narrow(1, words, more).fill_(-std::numeric_limits<double>::infinity());
    return all;
  }

  std::int64_t words, more;
  Tensor rows;
};

torch::ScalarType multiplied_type(const Tensor& hidden) {
  const auto device = hidden.device().type();
  const bool is_shorter = at::autocast::is_autocast_enabled(device);
  return is_shorter ? at::autocast::get_autocast_dtype(device) : hidden.scalar_type();
}

torch::ScalarType summed_type(const Tensor& hidden) {
  return hidden.scalar_type() == torch::kDouble ? torch::kDouble : torch::kFloat;
}

/// The sum of the losses of some tokens, and its gradient by their scores.
struct ChunkLoss {
  Tensor sum, gradient;
};

// Of the softmax p of scores the gradient is p - target, the target being smoothed. On devices each
// operator here is a pass over memory, so types are changed within others.
ChunkLoss chunk_loss(const Tensor& scores, std::int64_t words, const Tensor& tokens,
    std::int64_t ignored, double smoothing) {
  const double share = 1 - smoothing;
  const Tensor left_out = tokens.eq(ignored), place = tokens.masked_fill(left_out, 0).unsqueeze(1);
  Tensor logs = at::log_softmax(scores, 1, summed_type(scores));
  Tensor losses = logs.gather(1, place).squeeze(1) * -share;
  if (smoothing > 0) losses -= logs.narrow(1, 0, words).mean(1) * smoothing;
  Tensor gradient = logs.exp_();
  if (smoothing > 0) gradient -= smoothing / static_cast<double>(words);
  gradient.scatter_add_(1, place, at::full(place.sizes(), -share, gradient.options()));
  gradient = gradient.to(scores.scalar_type()).masked_fill_(left_out.unsqueeze(1), 0);
  return {losses.masked_fill_(left_out, 0).sum(), gradient};
}

bool is_for_own(const Tensor& scores) {
  return kernels_in_use() != Kernels::kLibTorch && fused::is_cross_entropy_own(scores);
}

// Its gradient lies where the scores did.
ChunkLoss own_chunk_loss(
    const Tensor& scores, const Tensor& tokens, std::int64_t ignored, double smoothing) {
  static const fused::CrossEntropyKernel& fastest = *fused::cross_entropy_kernels().back();
  return {fused::own_cross_entropy(fastest, scores, tokens, ignored, smoothing).sum(), scores};
}

struct ChunkedCrossEntropy : torch::autograd::Function<ChunkedCrossEntropy> {
  static Tensor forward(AutogradContext* context, const Tensor& hidden, const Tensor& weight,
      const Tensor& tokens, std::int64_t ignored, double smoothing) {
    const auto type = multiplied_type(hidden), summed = summed_type(hidden);
    const c10::impl::ExcludeDispatchKeyGuard as_it_is(c10::autocast_dispatch_keyset);
    const Tensor rows = hidden.flatten(0, 1), labels = tokens.flatten();
    const WordFactor factor(weight, type);
    const Tensor of_rows = at::empty(rows.sizes(), rows.options());
    const Tensor of_words = at::zeros(factor.rows.sizes(), weight.options().dtype(summed));
    Tensor sum = at::zeros({}, rows.options().dtype(summed));
    const std::int64_t step = rows_of_chunk(weight);
    for (std::int64_t first = 0; first < rows.size(0); first += step) {
      const Tensor chunk = rows.slice(0, first, first + step).to(type);
      const Tensor scores = factor.scores(chunk), chosen = labels.slice(0, first, first + step);
      const auto [loss, gradient] =
          is_for_own(scores) ? own_chunk_loss(scores, chosen, ignored, smoothing)
                             : chunk_loss(scores, factor.words, chosen, ignored, smoothing);
      sum += loss;
      of_rows.slice(0, first, first + step).copy_(at::linear(gradient, factor.rows.t()));
      linear::add_product(of_words, gradient.t(), chunk);
    }
    const Tensor of_weight = of_words.narrow(0, 0, factor.words);
    context->saved_data["gradients"] =
        variable_list{of_rows.view(hidden.sizes()), of_weight.to(weight.scalar_type())};
    return sum;
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    check(!at::GradMode::is_enabled(), "chunked_cross_entropy: has no second derivative");
    c10::IValue kept = std::exchange(context->saved_data["gradients"], c10::IValue());
    check(!kept.isNone(), "chunked_cross_entropy: its backward was called twice");
    variable_list own = kept.toTensorVector();
    for (Tensor& gradient : own) gradient.mul_(gradients.front().to(gradient.scalar_type()));
    own.resize(5);  // of tokens, ignored and smoothing
    return own;
  }
};

}  // namespace

Tensor deferred_scores(const Tensor& hidden, const Tensor& weight) {
  return DeferredScores::apply(hidden, weight);
}

std::optional<ScoreFactors> score_factors(const Tensor& scores) {
  using Node = torch::autograd::CppNode<DeferredScores>;
  auto* const node = dynamic_cast<Node*>(scores.grad_fn().get());
  if (node == nullptr) return std::nullopt;
  const variable_list factors = node->ctx_.get_saved_variables();
  return ScoreFactors{factors.at(0), factors.at(1)};
}

void defer_scores(const torch::nn::Module& module) {
  for (const auto& each : module.modules(/*include_self=*/false))
    if (auto* const scores = each->as<TiedScoresImpl>()) scores->defer();
}

void sum_losses(const torch::nn::Module& module, std::int64_t ignored, double smoothing) {
  for (const auto& each : module.modules(/*include_self=*/false))
    if (auto* const scores = each->as<TiedScoresImpl>()) scores->sum_losses(ignored, smoothing);
}

Tensor with_next_tokens(const Tensor& tokens, const Tensor& next) {
  return at::stack({tokens.to(torch::kLong), next.to(torch::kLong)}, 2);
}

Tensor token_losses(const ScoreFactors& scores, const Tensor& tokens) {
  const auto type = multiplied_type(scores.hidden), summed = summed_type(scores.hidden);
  const c10::impl::ExcludeDispatchKeyGuard as_it_is(c10::autocast_dispatch_keyset);
  const Tensor rows = scores.hidden.flatten(0, 1), labels = tokens.flatten();
  const WordFactor factor(scores.weight, type);
  const std::int64_t step = rows_of_chunk(scores.weight);
  variable_list losses;
  for (std::int64_t first = 0; first < rows.size(0); first += step) {
    const Tensor chunk = factor.scores(rows.slice(0, first, first + step).to(type));
    losses.push_back(at::cross_entropy_loss(
        chunk.to(summed), labels.slice(0, first, first + step), {}, at::Reduction::None));
  }
  if (losses.empty()) return at::empty(tokens.sizes(), rows.options().dtype(summed));
  return at::cat(losses).view(tokens.sizes());
}

Tensor chunked_cross_entropy(
    const ScoreFactors& scores, const Tensor& tokens, std::int64_t ignored, double smoothing) {
  return ChunkedCrossEntropy::apply(
      scores.hidden, scores.weight, tokens.to(torch::kLong), ignored, smoothing);
}

}  // namespace lockstep::nn
