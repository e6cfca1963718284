#include "lockstep/parallel/ddp/replicated_state.h"

#include <algorithm>

#include <fnmatch.h>

#include <torch/nn/modules/embedding.h>

#include "lockstep/core/error.h"

namespace lockstep {
namespace {

bool has_sparse_gradient(const torch::nn::Module& module) {
  if (const auto* table = dynamic_cast<const torch::nn::EmbeddingImpl*>(&module))
    return table->options.sparse();
  if (const auto* bag = dynamic_cast<const torch::nn::EmbeddingBagImpl*>(&module))
    return bag->options.sparse();
  return false;
}

bool fits(const std::string& pattern, const std::string& name) {
  return ::fnmatch(pattern.c_str(), name.c_str(), 0) == 0;
}

bool fits_any(const std::vector<std::string>& patterns, const std::string& name) {
  return std::any_of(patterns.begin(), patterns.end(), [&](const std::string& pattern) {
    return fits(pattern, name);
  });
}

bool fits_one_of(const std::string& pattern, const NamedTensors& tensors) {
  return std::any_of(tensors.begin(), tensors.end(), [&](const auto& entry) {
    return fits(pattern, entry.first);
  });
}

NamedTensors kept(const NamedTensors& tensors, const std::vector<std::string>& patterns) {
  NamedTensors result;
  for (const auto& entry : tensors) {
    if (!fits_any(patterns, entry.first)) result.push_back(entry);
  }
  return result;
}

}  // namespace

void ReplicatedState::add(const torch::nn::Module& module, const std::string& prefix) {
  for (const auto& entry : module.named_parameters())
    parameters.emplace_back(prefix + entry.key(), entry.value());
  for (const auto& entry : module.named_buffers())
    buffers.emplace_back(prefix + entry.key(), entry.value());
  const auto note_embedding = [&](const std::string& path, const torch::nn::Module& part) {
    if (has_sparse_gradient(part))
      sparse.insert(prefix + (path.empty() ? "" : path + ".") + "weight");
  };
  module.apply(note_embedding);
}

ReplicatedState ReplicatedState::without(const std::vector<std::string>& patterns) const {
  for (const std::string& pattern : patterns) {
    check(
        fits_one_of(pattern, parameters) || fits_one_of(pattern, buffers),
        "DistributedDataParallel: to be ignored is ", pattern,
        ", but no parameter or buffer has such a name");
  }
  return {kept(parameters, patterns), kept(buffers, patterns), sparse};
}

}  // namespace lockstep
