#include "lockstep/nn/models/language/gpt2.h"

#include <memory>
#include <string>
#include <utility>

#include <ATen/ops/dropout.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/zeros.h>
#include <torch/nn/modules/normalization.h>

#include "lockstep/nn/fused/gelu.h"
namespace lockstep::nn {
namespace {

torch::nn::LayerNorm layer_norm(std::int64_t width) {
  return torch::nn::LayerNorm(torch::nn::LayerNormOptions({width}));
}

/// A linear layer whose weight is [inputs, outputs], as OpenAI's files have it.
class ColumnLinearImpl final : public torch::nn::Module {
 public:
  ColumnLinearImpl(std::int64_t inputs, std::int64_t outputs)
      : weight_(register_parameter("weight", at::empty({inputs, outputs}))),
        bias_(register_parameter("bias", at::zeros({outputs}))) {}

  torch::Tensor forward(const torch::Tensor& input) {
    return at::linear(input, weight_.t(), bias_);
  }

 private:
  torch::Tensor weight_, bias_;
};
TORCH_MODULE(ColumnLinear);

/// Each token's view of those before it.
class Gpt2AttentionImpl final : public torch::nn::Module {
 public:
  Gpt2AttentionImpl(std::int64_t width, std::int64_t heads, double dropout)
      : heads_(heads), dropout_(dropout) {
    c_attn_ = register_module("c_attn", ColumnLinear(width, 3 * width));
    c_proj_ = register_module("c_proj", ColumnLinear(width, width));
  }

  torch::Tensor forward(const torch::Tensor& hidden) {
    const auto parts = c_attn_(hidden).chunk(3, 2);
    const torch::Tensor seen = causal_attention(in_heads(parts[0], heads_),
        in_heads(parts[1], heads_), in_heads(parts[2], heads_), is_training() ? dropout_ : 0);
    return at::dropout(c_proj_(seen), dropout_, is_training());
  }

 private:
  std::int64_t heads_;
  double dropout_;
  ColumnLinear c_attn_{nullptr}, c_proj_{nullptr};
};
TORCH_MODULE(Gpt2Attention);

class Gpt2MlpImpl final : public torch::nn::Module {
 public:
  Gpt2MlpImpl(std::int64_t width, double dropout) : dropout_(dropout) {
    c_fc_ = register_module("c_fc", ColumnLinear(width, 4 * width));
    c_proj_ = register_module("c_proj", ColumnLinear(4 * width, width));
  }

  torch::Tensor forward(const torch::Tensor& hidden) {
    const torch::Tensor wide = fused::gelu(c_fc_(hidden), fused::GeluForm::kTanh);
    return at::dropout(c_proj_(wide), dropout_, is_training());
  }

 private:
  double dropout_;
  ColumnLinear c_fc_{nullptr}, c_proj_{nullptr};
};
TORCH_MODULE(Gpt2Mlp);

class Gpt2BlockImpl final : public CloneByArguments<Gpt2BlockImpl> {
 public:
  Gpt2BlockImpl(std::int64_t width, std::int64_t heads, double dropout)
      : arguments_(width, heads, dropout) {
    ln_1_ = register_module("ln_1", layer_norm(width));
    attn_ = register_module("attn", Gpt2Attention(width, heads, dropout));
    ln_2_ = register_module("ln_2", layer_norm(width));
    mlp_ = register_module("mlp", Gpt2Mlp(width, dropout));
  }

  Flow forward(const Flow& flow) {
    const torch::Tensor hidden = flow.at(0) + attn_(ln_1_(flow.at(0)));
    return with_hidden(flow, hidden + mlp_(ln_2_(hidden)));
  }

  std::tuple<std::int64_t, std::int64_t, double> arguments() const { return arguments_; }

 private:
  std::tuple<std::int64_t, std::int64_t, double> arguments_;
  torch::nn::LayerNorm ln_1_{nullptr}, ln_2_{nullptr};
  Gpt2Attention attn_{nullptr};
  Gpt2Mlp mlp_{nullptr};
};

/// The vectors of the places in a sequence, added to those of its tokens.
class PositionEmbeddingImpl final : public CloneByArguments<PositionEmbeddingImpl> {
 public:
  PositionEmbeddingImpl(std::int64_t context, std::int64_t width, double dropout)
      : dropout_(dropout), weight_(register_parameter("weight", at::empty({context, width}))) {}

  Flow forward(const Flow& flow) {
    const torch::Tensor hidden = flow.at(0) + weight_.slice(0, 0, flow.at(0).size(1));
    return with_hidden(flow, at::dropout(hidden, dropout_, is_training()));
  }

  std::tuple<std::int64_t, std::int64_t, double> arguments() const {
    return {weight_.size(0), weight_.size(1), dropout_};
  }

 private:
  double dropout_;
  torch::Tensor weight_;
};

/// The norm of the hidden states behind the last block.
class Gpt2NormImpl final : public torch::nn::LayerNormImpl {
 public:
  explicit Gpt2NormImpl(std::int64_t width) : LayerNormImpl(torch::nn::LayerNormOptions({width})) {}

  Flow forward(const Flow& flow) { return with_hidden(flow, LayerNormImpl::forward(flow.at(0))); }

  std::shared_ptr<torch::nn::Module> clone(
      const std::optional<at::Device>& device = std::nullopt) const override {
    auto copy = std::make_shared<Gpt2NormImpl>(weight.size(0));
    copy_state(*this, *copy, device);
    return copy;
  }
};

}  // namespace

bool is_column_linear(const torch::nn::Module& module) {
  return dynamic_cast<const ColumnLinearImpl*>(&module) != nullptr;
}

Gpt2Impl::Gpt2Impl(const Gpt2Shape& shape, std::int64_t vocabulary, double dropout)
    : shape_(shape), vocabulary_(vocabulary), dropout_(dropout) {
  append("input", token_layer(shape.name, vocabulary, shape.context));
  append_at("transformer.wte", std::make_shared<TokenEmbeddingImpl>(vocabulary, shape.width));
  append_at("transformer.wpe",
      std::make_shared<PositionEmbeddingImpl>(shape.context, shape.width, dropout));
  for (std::int64_t i = 0; i < shape.layers; ++i)
    append_at("transformer.h." + std::to_string(i),
        std::make_shared<Gpt2BlockImpl>(shape.width, shape.heads, dropout));
  append_at("transformer.ln_f", std::make_shared<Gpt2NormImpl>(shape.width));
  append_at("lm_head", std::make_shared<TiedScoresImpl>());
  plan_draws({"c_proj.weight"}, shape.layers);
}

}  // namespace lockstep::nn
