#pragma once

#include <cstdint>
#include <tuple>

#include "lockstep/nn/models/catalogue.h"
#include "lockstep/nn/models/language/language_layers.h"

namespace lockstep::nn {

/// GPT-2 with the names of transformers' GPT2LMHeadModel, nanoGPT's initialisation, and its dropout
/// behind the embeddings, in the attention, and before each addition to the hidden states.
///
/// Takes tokens [N, T], gives scores [N, T, vocabulary]. Its layers: input, transformer.wte,
/// transformer.wpe, transformer.h.N, transformer.ln_f, lm_head, which has the weight of
/// transformer.wte, as files of transformers have it: once.
class Gpt2Impl final : public CloneByArguments<Gpt2Impl, LanguageModelImpl> {
 public:
  Gpt2Impl(const Gpt2Shape& shape, std::int64_t vocabulary, double dropout);
  std::tuple<Gpt2Shape, std::int64_t, double> arguments() const {
    return {shape_, vocabulary_, dropout_};
  }

 private:
  Gpt2Shape shape_;
  std::int64_t vocabulary_;
  double dropout_;
};

/// Returns whether a module is one of GPT-2's linear layers, whose weights are [inputs, outputs]:
/// they do nothing but linear().
bool is_column_linear(const torch::nn::Module& module);

}  // namespace lockstep::nn
