#include "lockstep/train/optim/freeze.h"

#include <algorithm>

#include <fnmatch.h>

#include <torch/nn/modules/batchnorm.h>

#include "lockstep/core/error.h"

namespace lockstep {
namespace {

bool matches(const std::string& pattern, const std::string& name) {
  return ::fnmatch(pattern.c_str(), name.c_str(), 0) == 0;
}

// `conv1.*, bn1.*, layer1.*`: what the names begin with.
std::string beginnings(const torch::nn::Module& module) {
  std::string text, last;
  for (const auto& name : module.named_parameters().keys()) {
    const std::string first = name.substr(0, name.find('.'));
    if (first == last) continue;
    text += (text.empty() ? "" : ", ") + first + ".*";
    last = first;
  }
  return text;
}

bool is_batch_norm(const torch::nn::Module& module) {
  return module.as<torch::nn::BatchNorm1d>() != nullptr ||
         module.as<torch::nn::BatchNorm2d>() != nullptr ||
         module.as<torch::nn::BatchNorm3d>() != nullptr;
}

bool is_frozen(const torch::nn::Module& module) {
  const auto parameters = module.parameters();
  return !parameters.empty() && std::ranges::none_of(parameters, [](const auto& parameter) {
    return parameter.requires_grad();
  });
}

void check_all_match(const torch::nn::Module& module, const std::vector<std::string>& patterns) {
  const auto names = module.named_parameters().keys();
  for (const auto& pattern : patterns) {
    const auto is_meant = [&](const std::string& name) { return matches(pattern, name); };
    check(
        std::ranges::any_of(names, is_meant), "train: --freeze matches no parameter: ", pattern,
        "; their names are ", beginnings(module), ", such as ", names.front());
  }
}

}  // namespace

Frozen freeze(torch::nn::Module& module, const std::vector<std::string>& patterns) {
  check_all_match(module, patterns);
  Frozen frozen;
  for (auto& item : module.named_parameters()) {
    const auto is_meant = [&](const std::string& pattern) { return matches(pattern, item.key()); };
    if (!std::ranges::any_of(patterns, is_meant)) continue;
    item.value().set_requires_grad(false);
    ++frozen.parameters;
    frozen.elements += item.value().numel();
  }
  check(!is_frozen(module), "train: --freeze leaves no parameter to train");
  for (const auto& layer : module.modules(/*include_self=*/false)) {
    if (is_batch_norm(*layer) && is_frozen(*layer)) frozen.norms.push_back(layer);
  }
  return frozen;
}

void keep_in_evaluation(const Frozen& frozen) {
  for (const auto& norm : frozen.norms) norm->eval();
}

}  // namespace lockstep
