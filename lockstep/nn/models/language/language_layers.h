#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include <ATen/core/Generator.h>
#include <torch/nn/module.h>
#include <torch/nn/modules/container/any.h>
#include <torch/types.h>

#include "lockstep/nn/models/model.h"

namespace lockstep::nn {

/// The tensors that go through the chain of a language model: hidden states [N, T, width], the
/// weight of the embedding [vocabulary, width], and the next tokens [N, T] where they are given.
///
/// Note [Tied embeddings]
/// The last layer multiplies by the embedding's weight. It is a parameter of the first layer alone,
/// which hands it on: so a chain may be cut anywhere, the weight's gradients add up where it is,
/// and files, optimizers and norms know it once. A pipeline over ranks sends it with each
/// micro-batch.
using Flow = std::vector<torch::Tensor>;

/// Returns the flow with other hidden states.
inline Flow with_hidden(Flow flow, torch::Tensor hidden) {
  flow.at(0) = std::move(hidden);
  return flow;
}

/// Makes the first layer: checks that tokens are whole numbers [N, T] below `vocabulary`, T at most
/// `context`, and makes them int64; or those of with_next_tokens().
/// The message of the InvalidArgument begins with the net's name.
torch::nn::AnyModule token_layer(const char* net, std::int64_t vocabulary, std::int64_t context);

/// The vectors of tokens, of whose numbers it drops some; begins the flow.
class TokenEmbeddingImpl final : public CloneByArguments<TokenEmbeddingImpl> {
 public:
  TokenEmbeddingImpl(std::int64_t vocabulary, std::int64_t width, double dropout = 0);
  Flow forward(const torch::Tensor& given);
  std::tuple<std::int64_t, std::int64_t, double> arguments() const {
    return {weight_.size(0), weight_.size(1), dropout_};
  }

 private:
  torch::Tensor weight_;
  double dropout_;
};

/// The last layer: hidden states times the embedding's weight, scores [N, T, vocabulary]; with the
/// next tokens their losses, [N, T], or the sum of these.
class TiedScoresImpl final : public CloneByArguments<TiedScoresImpl> {
 public:
  torch::Tensor forward(const Flow& flow);
  std::tuple<> arguments() const { return {}; }

  /// Lets it give deferred_scores() in training, where gradients are wanted. A clone does not.
  void defer() { is_deferred_ = true; }

  /// Lets it give chunked_cross_entropy() in training, where it has the next tokens.
  void sum_losses(std::int64_t ignored, double smoothing) { summed_ = {ignored, smoothing}; }

 private:
  bool is_deferred_ = false;
  std::optional<std::pair<std::int64_t, double>> summed_;  // what is ignored, and the smoothing
};

/// Returns what each token gathers of those before it and of itself: queries [N, T, heads, size],
/// keys and values [N, T, as many heads or a divisor of them, size]; [N, T, heads x size].
torch::Tensor causal_attention(const torch::Tensor& queries, const torch::Tensor& keys,
    const torch::Tensor& values, double dropout);

/// Returns hidden states [N, T, heads x size] as [N, T, heads, size].
inline torch::Tensor in_heads(const torch::Tensor& hidden, std::int64_t heads) {
  return hidden.unflatten(2, {heads, hidden.size(2) / heads});
}

/// Draws a parameter, and those before it that have not been drawn.
using DrawParameter = std::function<void(const torch::Tensor&)>;

/// A chain from tokens to scores; see Note [Tied embeddings].
///
/// The constructor leaves the matrices empty, which takes no memory.
class LanguageModelImpl : public ModelImpl {
 public:
  /// Draws all matrices from the default generator.
  void draw() const;

  /// Returns what draws the same, parameter by parameter, from a generator of the host.
  DrawParameter draws(const at::Generator& generator) const;

 protected:
  /// Registers a layer under a name with dots, as `transformer.h.0`, and appends it to the chain.
  template <typename Layer>
  void append_at(const std::string& path, const std::shared_ptr<Layer>& layer) {
    register_at(path, layer);
    append(path, layer);
  }

  /// Lets draw() take all matrices from a normal distribution of deviation 0.02, those whose names
  /// end so and which add to the residual stream by 1 / sqrt(2 x layers) of it, as GPT-2's.
  void plan_draws(const std::vector<std::string>& of_residuals, std::int64_t layers);

 private:
  struct Draw {
    torch::Tensor parameter;
    double deviation;
  };

  void register_at(const std::string& path, std::shared_ptr<torch::nn::Module> layer);

  std::vector<Draw> draws_;  // in the order of the parameters
};

}  // namespace lockstep::nn
