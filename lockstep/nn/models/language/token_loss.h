#pragma once

#include <cstdint>
#include <optional>

#include <torch/nn/module.h>
#include <torch/types.h>

namespace lockstep::nn {

/// Hidden states [N, T, width] and a weight [vocabulary, width], whose product would be scores.
struct ScoreFactors {
  torch::Tensor hidden, weight;
};

/// Makes scores that are not computed: a tensor [N, T, 0] in their place in the graph, of which
/// score_factors() finds what they are the product of.
///
/// Note [Scores in chunks]
/// A vocabulary is large: scores [N, T, vocabulary] in float, their softmax and their gradient are
/// often most of the memory of a step, and are read and written several times from there. The loss
/// needs a few hundred tokens' scores at a time. But the loss is the task's, and the product is the
/// last layer's, perhaps in another stage than the other layers. So that layer hands its factors to
/// the loss, in the form of the one tensor that a chain gives.
///
/// Without gradients there is no graph to hand factors on, and the loss of each token is all that
/// is asked for. So evaluations give the net the next tokens, too, and the last layer gives losses:
/// the same in every way of spreading. So does training where the parameters are sharded, since the
/// weight is whole only while that layer computes.
torch::Tensor deferred_scores(const torch::Tensor& hidden, const torch::Tensor& weight);

/// Returns the factors of scores that are not computed; nothing for others.
std::optional<ScoreFactors> score_factors(const torch::Tensor& scores);

/// Lets the language models of a module defer their scores in training where gradients are wanted.
/// Whoever takes its output must ask score_factors().
void defer_scores(const torch::nn::Module& module);

/// Lets the language models of a module give chunked_cross_entropy() in training, where they are
/// given with_next_tokens().
void sum_losses(const torch::nn::Module& module, std::int64_t ignored, double smoothing);

/// Returns tokens [N, T] with the next ones, [N, T, 2]: given these, a language model gives
/// token_losses() and no scores.
torch::Tensor with_next_tokens(const torch::Tensor& tokens, const torch::Tensor& next);

/// Returns the cross entropy of each token [N, T], at least in float; 0 of those that are -100.
/// Scores are computed for some tokens at a time, with autocast's type.
torch::Tensor token_losses(const ScoreFactors& scores, const torch::Tensor& tokens);

/// Returns the sum of the cross entropies of all tokens [N, T], of which those of `ignored` add
/// nothing, and keeps its gradients, each in the type of its factor: scores are computed for some
/// tokens at a time, once, with autocast's type. The sum is at least in float. Differentiable once.
torch::Tensor chunked_cross_entropy(const ScoreFactors& scores, const torch::Tensor& tokens,
    std::int64_t ignored, double smoothing = 0);

}  // namespace lockstep::nn
