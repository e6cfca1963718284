#include "lockstep/nn/models/language/language_layers.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <utility>

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/aminmax.h>
#include <ATen/ops/dropout.h>
#include <ATen/ops/embedding.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/scaled_dot_product_attention.h>

#include "lockstep/core/error.h"
#include "lockstep/core/text.h"
#include "lockstep/device/host_tensor.h"
#include "lockstep/nn/models/language/token_loss.h"

namespace lockstep::nn {
namespace {

constexpr double kDeviation = 0.02;

bool has_next_tokens(const torch::Tensor& given) { return given.dim() == 3 && given.size(2) == 2; }

// On a device it would wait for it, and the kernel there checks.
void check_below(const torch::Tensor& tokens, std::int64_t vocabulary, const char* net) {
  if (!tokens.is_cpu() || tokens.numel() == 0) return;
  const auto [least, most] = at::aminmax(tokens);
  check(least.item<std::int64_t>() >= 0 && most.item<std::int64_t>() < vocabulary, net,
      ": has a vocabulary of ", vocabulary, ", and was given tokens from ",
      least.item<std::int64_t>(), " to ", most.item<std::int64_t>(), "; give --num-classes ",
      most.item<std::int64_t>() + 1, " or more");
}

}  // namespace

torch::nn::AnyModule token_layer(const char* net, std::int64_t vocabulary, std::int64_t context) {
  return layer_of([=](const torch::Tensor& given) {
    const bool has_next = has_next_tokens(given);
    check((given.dim() == 2 || has_next) && given.size(1) > 0 &&
              at::isIntegralType(given.scalar_type(), /*includeBool=*/false),
        net, ": takes tokens [N, T], whole numbers, not ", given.scalar_type(), " ", given.sizes());
    check(given.size(1) <= context, net, ": takes sequences of at most ", context, " tokens, not ",
        given.size(1));
    check_below(has_next ? given.select(2, 0) : given, vocabulary, net);
    return given.to(torch::kLong);
  });
}

TokenEmbeddingImpl::TokenEmbeddingImpl(std::int64_t vocabulary, std::int64_t width, double dropout)
    : weight_(register_parameter("weight", at::empty({vocabulary, width}))), dropout_(dropout) {}

// A parameter that is itself an output would get the history of whoever computes this layer again.
Flow TokenEmbeddingImpl::forward(const torch::Tensor& given) {
  const bool has_next = has_next_tokens(given);
  const torch::Tensor vectors = at::embedding(weight_, has_next ? given.select(2, 0) : given);
  Flow flow = {at::dropout(vectors, dropout_, is_training()), weight_.view_as(weight_)};
  if (has_next) flow.push_back(given.select(2, 1));
  return flow;
}

torch::Tensor TiedScoresImpl::forward(const Flow& flow) {
  const bool has_next = flow.size() > 2;
  if (has_next && summed_ && is_training())
    return chunked_cross_entropy(
        {flow.at(0), flow.at(1)}, flow.at(2), summed_->first, summed_->second);
  if (has_next) return token_losses({flow.at(0), flow.at(1)}, flow.at(2));
  const bool is_step = is_training() && torch::GradMode::is_enabled();
  if (is_deferred_ && is_step) return deferred_scores(flow.at(0), flow.at(1));
  return at::linear(flow.at(0), flow.at(1));
}

torch::Tensor causal_attention(const torch::Tensor& queries, const torch::Tensor& keys,
    const torch::Tensor& values, double dropout) {
  const bool is_grouped = queries.size(2) != keys.size(2);
  return at::scaled_dot_product_attention(queries.transpose(1, 2), keys.transpose(1, 2),
      values.transpose(1, 2), {}, dropout, /*is_causal=*/true, {}, is_grouped)
      .transpose(1, 2)
      .flatten(2);
}

void LanguageModelImpl::plan_draws(
    const std::vector<std::string>& of_residuals, std::int64_t layers) {
  for (const auto& item : named_parameters()) {
    if (item.value().dim() < 2) continue;
    const bool is_residual = std::ranges::any_of(
        of_residuals, [&](const std::string& end) { return item.key().ends_with(end); });
    const double share = is_residual ? std::sqrt(2.0 * static_cast<double>(layers)) : 1;
    draws_.push_back({item.value(), kDeviation / share});
  }
}

void LanguageModelImpl::draw() const {
  draws(at::detail::getDefaultCPUGenerator())(draws_.back().parameter);
}

DrawParameter LanguageModelImpl::draws(const at::Generator& generator) const {
  return
      [draws = draws_, generator, next = std::ptrdiff_t{0}](const torch::Tensor& wanted) mutable {
        const torch::NoGradGuard no_gradients;
        const auto last = std::ranges::find_if(
            draws, [&](const Draw& draw) { return draw.parameter.is_same(wanted); });
        if (last == draws.end()) return;
        for (; next <= last - draws.begin(); ++next) {
          const auto& [parameter, deviation] = draws[static_cast<std::size_t>(next)];
          const bool is_here = parameter.is_cpu();
          const torch::Tensor values =
              is_here ? parameter : at::empty(parameter.sizes(), on_host(parameter.scalar_type()));
          values.normal_(0, deviation, generator);
          if (!is_here) torch::Tensor(parameter).copy_(values);
        }
      };
}

void LanguageModelImpl::register_at(
    const std::string& path, std::shared_ptr<torch::nn::Module> layer) {
  std::vector<std::string> names = split(path, '.');
  const std::string last = std::move(names.back());
  names.pop_back();
  torch::nn::Module* folder = this;
  for (const std::string& name : names) {
    const auto children = folder->named_children();
    const auto* const found = children.find(name);
    folder = found != nullptr
                 ? found->get()
                 : folder->register_module(name, std::make_shared<torch::nn::Module>(name)).get();
  }
  folder->register_module(last, std::move(layer));
}

}  // namespace lockstep::nn
