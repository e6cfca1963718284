#include "lockstep/nn/models/language/llama.h"

#include <memory>
#include <string>

#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/dropout.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/outer.h>
#include <ATen/ops/pow.h>
#include <ATen/ops/rms_norm.h>

#include "lockstep/nn/fused/rotary.h"
#include "lockstep/nn/fused/swiglu.h"
#include "lockstep/nn/models/row_linear.h"

namespace lockstep::nn {
namespace {

constexpr double kEpsilon = 1e-5;
constexpr double kRotaryBase = 10000;

RowLinear linear_without_bias(std::int64_t inputs, std::int64_t outputs) {
  return RowLinear(torch::nn::LinearOptions(inputs, outputs).bias(false));
}

class RmsNormImpl : public torch::nn::Module {
 public:
  explicit RmsNormImpl(std::int64_t width)
      : weight_(register_parameter("weight", at::ones({width}))) {}
  torch::Tensor forward(const torch::Tensor& hidden) {
    return at::rms_norm(hidden, weight_.sizes(), weight_, kEpsilon);
  }

 protected:
  torch::Tensor weight_;
};
TORCH_MODULE(RmsNorm);

/// Each token's view of those before it; several heads of queries may share those of keys.
class LlamaAttentionImpl final : public torch::nn::Module {
 public:
  LlamaAttentionImpl(const LlamaShape& shape, double dropout)
      : heads_(shape.heads), key_heads_(shape.key_heads), dropout_(dropout) {
    const std::int64_t width = shape.width, of_keys = width / heads_ * key_heads_;
    q_proj_ = register_module("q_proj", linear_without_bias(width, width));
    k_proj_ = register_module("k_proj", linear_without_bias(width, of_keys));
    v_proj_ = register_module("v_proj", linear_without_bias(width, of_keys));
    o_proj_ = register_module("o_proj", linear_without_bias(width, width));
  }

  torch::Tensor forward(const torch::Tensor& hidden) {
    const torch::Tensor seen = causal_attention(rotary(in_heads(q_proj_(hidden), heads_)),
        rotary(in_heads(k_proj_(hidden), key_heads_)), in_heads(v_proj_(hidden), key_heads_),
        is_training() ? dropout_ : 0);
    return at::dropout(o_proj_(seen), dropout_, is_training());
  }

 private:
  std::int64_t heads_, key_heads_;
  double dropout_;
  RowLinear q_proj_{nullptr}, k_proj_{nullptr}, v_proj_{nullptr}, o_proj_{nullptr};
};
TORCH_MODULE(LlamaAttention);

/// SwiGLU.
class LlamaMlpImpl final : public torch::nn::Module {
 public:
  LlamaMlpImpl(const LlamaShape& shape, double dropout) : dropout_(dropout) {
    gate_proj_ = register_module("gate_proj", linear_without_bias(shape.width, shape.hidden));
    up_proj_ = register_module("up_proj", linear_without_bias(shape.width, shape.hidden));
    down_proj_ = register_module("down_proj", linear_without_bias(shape.hidden, shape.width));
  }

  torch::Tensor forward(const torch::Tensor& hidden) {
    const torch::Tensor gated = fused::swiglu(gate_proj_(hidden), up_proj_(hidden));
    return at::dropout(down_proj_(gated), dropout_, is_training());
  }

 private:
  double dropout_;
  RowLinear gate_proj_{nullptr}, up_proj_{nullptr}, down_proj_{nullptr};
};
TORCH_MODULE(LlamaMlp);

class LlamaBlockImpl final : public CloneByArguments<LlamaBlockImpl> {
 public:
  LlamaBlockImpl(const LlamaShape& shape, double dropout) : arguments_(shape, dropout) {
    self_attn_ = register_module("self_attn", LlamaAttention(shape, dropout));
    mlp_ = register_module("mlp", LlamaMlp(shape, dropout));
    input_layernorm_ = register_module("input_layernorm", RmsNorm(shape.width));
    post_attention_layernorm_ = register_module("post_attention_layernorm", RmsNorm(shape.width));
  }

  Flow forward(const Flow& flow) {
    const torch::Tensor hidden = flow.at(0) + self_attn_(input_layernorm_(flow.at(0)));
    return with_hidden(flow, hidden + mlp_(post_attention_layernorm_(hidden)));
  }

  std::tuple<LlamaShape, double> arguments() const { return arguments_; }

 private:
  std::tuple<LlamaShape, double> arguments_;
  LlamaAttention self_attn_{nullptr};
  LlamaMlp mlp_{nullptr};
  RmsNorm input_layernorm_{nullptr}, post_attention_layernorm_{nullptr};
};

/// The norm of the hidden states behind the last block.
class LlamaNormImpl final : public CloneByArguments<LlamaNormImpl, RmsNormImpl> {
 public:
  using CloneByArguments::CloneByArguments;
  Flow forward(const Flow& flow) { return with_hidden(flow, RmsNormImpl::forward(flow.at(0))); }
  std::tuple<std::int64_t> arguments() const { return {weight_.size(0)}; }
};

}  // namespace

// The angles are float32 as in transformers, whatever the heads are of.
torch::Tensor rotary(const torch::Tensor& heads) {
  const std::int64_t size = heads.size(3);
  const auto numbers = heads.options().dtype(torch::kFloat).requires_grad(false);
  const torch::Tensor rates = 1 / at::pow(kRotaryBase, at::arange(0, size, 2, numbers) / size);
  const torch::Tensor angles = at::outer(at::arange(heads.size(1), numbers), rates);
  const auto type = heads.scalar_type() == torch::kDouble ? torch::kDouble : torch::kFloat;
  const torch::Tensor cosines = angles.to(type).cos(), sines = angles.to(type).sin();
  if (fused::is_rotary_for_own(heads))
    return fused::own_rotary(*fused::rotary_kernels().back(), heads, {cosines, sines});
  const auto as_factor = [&](const torch::Tensor& values) {
    return values.to(heads.scalar_type()).unsqueeze(1);  // of all heads
  };
  const torch::Tensor cosine = as_factor(cosines);
  const torch::Tensor sine = as_factor(sines);
  const auto halves = heads.chunk(2, 3);
  return at::cat({halves[0] * cosine - halves[1] * sine, halves[1] * cosine + halves[0] * sine}, 3);
}

LlamaImpl::LlamaImpl(const LlamaShape& shape, std::int64_t vocabulary, double dropout)
    : shape_(shape), vocabulary_(vocabulary), dropout_(dropout) {
  append("input", token_layer(shape.name, vocabulary, shape.context));
  append_at(
      "model.embed_tokens", std::make_shared<TokenEmbeddingImpl>(vocabulary, shape.width, dropout));
  for (std::int64_t i = 0; i < shape.layers; ++i)
    append_at(
        "model.layers." + std::to_string(i), std::make_shared<LlamaBlockImpl>(shape, dropout));
  append_at("model.norm", std::make_shared<LlamaNormImpl>(shape.width));
  append_at("lm_head", std::make_shared<TiedScoresImpl>());
  // llama2.c scales what it calls w3, the one that enters, and not w2.
  plan_draws({"o_proj.weight", "up_proj.weight"}, shape.layers);
}

}  // namespace lockstep::nn
