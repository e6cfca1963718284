#include "lockstep/train/optim/optimizer.h"

#include "lockstep/nn/fused_optimizers.h"

namespace lockstep {
namespace {

// LibTorch treats a group's option with a default value as unset, and puts the optimizer's in its
// place: so the decay is set once the groups are there.
template <typename Optimizer, typename Options>
std::unique_ptr<torch::optim::Optimizer> make(const OptimizerSettings& settings,
    const std::vector<torch::Tensor>& parameters, const Options& options) {
  std::vector<torch::Tensor> kept, decaying;
  for (const auto& parameter : parameters) {
    const bool decays = settings.weight_decay_on == DecayOn::kAll || parameter.dim() > 1;
    (decays ? decaying : kept).push_back(parameter);
  }
  std::vector<torch::optim::OptimizerParamGroup> groups;
  if (!kept.empty()) groups.emplace_back(kept);
  if (!decaying.empty()) groups.emplace_back(decaying);
  auto optimizer = std::make_unique<Optimizer>(groups, options);
  for (std::size_t group = 0; group < groups.size(); ++group) {
    const bool decays = kept.empty() || group > 0;
    static_cast<Options&>(optimizer->param_groups()[group].options())
        .weight_decay(decays ? settings.weight_decay : 0);
  }
  return optimizer;
}

template <typename Options>
Options adam_options(const OptimizerSettings& settings) {
  const AdamBetas betas = settings.betas.value_or(AdamBetas());
  return Options(settings.lr)
      .eps(settings.eps.value_or(usual_eps(settings.kind)))
      .betas({betas.first, betas.second});
}

}  // namespace

std::unique_ptr<torch::optim::Optimizer> make_optimizer(
    const OptimizerSettings& settings, const std::vector<torch::Tensor>& parameters) {
  using torch::optim::AdamOptions, torch::optim::AdamWOptions, torch::optim::SGDOptions;
  if (settings.kind == OptimizerKind::kSgd) {
    return make<nn::SGD>(settings, parameters, SGDOptions(settings.lr).momentum(settings.momentum));
  }
  if (settings.kind == OptimizerKind::kAdamW)
    return make<nn::AdamW>(settings, parameters, adam_options<AdamWOptions>(settings));
  return make<nn::Adam>(settings, parameters, adam_options<AdamOptions>(settings));
}

}  // namespace lockstep
