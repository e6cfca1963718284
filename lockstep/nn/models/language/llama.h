#pragma once

#include <cstdint>
#include <tuple>

#include "lockstep/nn/models/catalogue.h"
#include "lockstep/nn/models/language/language_layers.h"

namespace lockstep::nn {

/// Returns heads [N, T, heads, size] that are turned by their places in the sequence, the first
/// half of each with the second, as transformers' Llama has them: RoPE of base 10000.
torch::Tensor rotary(const torch::Tensor& heads);

/// Llama with the names of transformers' LlamaForCausalLM, and llama2.c's initialisation and
/// dropout: behind the embedding, in the attention, and before each addition to the hidden states.
///
/// Takes tokens [N, T], gives scores [N, T, vocabulary]. Its layers: input, model.embed_tokens,
/// model.layers.N, model.norm, lm_head, which has the weight of model.embed_tokens, as files of
/// transformers have it: once.
class LlamaImpl final : public CloneByArguments<LlamaImpl, LanguageModelImpl> {
 public:
  LlamaImpl(const LlamaShape& shape, std::int64_t vocabulary, double dropout);
  std::tuple<LlamaShape, std::int64_t, double> arguments() const {
    return {shape_, vocabulary_, dropout_};
  }

 private:
  LlamaShape shape_;
  std::int64_t vocabulary_;
  double dropout_;
};

}  // namespace lockstep::nn
