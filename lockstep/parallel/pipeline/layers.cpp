#include "lockstep/parallel/pipeline/layers.h"

#include <map>
#include <numeric>
#include <set>

#include "lockstep/core/error.h"

namespace lockstep {
namespace {

constexpr const char* kAdvice = "; partition_by_count() or balance_by_time() make a balance";

void check_balance(const Layers& layers, const std::vector<int>& balance) {
  check(!balance.empty(), "pipeline: the balance names no stage", kAdvice);
  for (const int size : balance) {
    check(size >= 1, "pipeline: every stage needs a layer, the balance has ", size, kAdvice);
  }
  const int sum = std::accumulate(balance.begin(), balance.end(), 0);
  check(
      static_cast<std::size_t>(sum) == layers.size(),
      "pipeline: the balance adds up to ",
      sum,
      " layers, the model has ",
      layers.size(),
      kAdvice);
}

void check_layers_differ(const Layers& layers) {
  std::map<const torch::nn::Module*, std::string> seen;
  for (const auto& layer : layers) {
    const auto [first, fresh] = seen.emplace(layer.value().ptr().get(), layer.key());
    check(
        fresh,
        "pipeline: layer ",
        layer.key(),
        " is the same module as layer ",
        first->second,
        "; make two modules, or one layer that calls it twice");
  }
}

void check_parameters_of_one_stage(const std::vector<Layers>& stages) {
  std::map<const void*, std::pair<std::size_t, std::string>> owner;
  for (std::size_t stage = 0; stage < stages.size(); ++stage) {
    for (const auto& layer : stages[stage]) {
      for (const auto& parameter : layer.value().ptr()->named_parameters()) {
        const std::string name = layer.key() + "." + parameter.key();
        const auto [first, fresh] =
            owner.try_emplace(parameter.value().unsafeGetTensorImpl(), stage, name);
        check(
            fresh || first->second.first == stage,
            "pipeline: ",
            name,
            " in stage ",
            stage,
            " is the same parameter as ",
            first->second.second,
            " in stage ",
            first->second.first,
            "; put both layers into one stage");
      }
    }
  }
}

}  // namespace

Layers layers_of(const torch::nn::Sequential& net) {
  Layers layers;
  const auto names = net->named_children().keys();
  std::size_t index = 0;
  for (const auto& layer : *net) layers.insert(names.at(index++), layer);
  return layers;
}

std::vector<Layers> cut(const Layers& layers, const std::vector<int>& balance) {
  check_balance(layers, balance);
  check_layers_differ(layers);
  std::vector<Layers> stages;
  std::size_t next = 0;
  for (const int size : balance) {
    Layers& stage = stages.emplace_back();
    for (int taken = 0; taken < size; ++taken, ++next)
      stage.insert(layers[next].key(), layers[next].value());
  }
  check_parameters_of_one_stage(stages);
  return stages;
}

std::vector<torch::Tensor> parameters_of(const Layers& layers) {
  std::vector<torch::Tensor> parameters;
  std::set<const void*> seen;
  for (const auto& layer : layers) {
    for (const torch::Tensor& parameter : layer.value().ptr()->parameters()) {
      if (seen.insert(parameter.unsafeGetTensorImpl()).second) parameters.push_back(parameter);
    }
  }
  return parameters;
}

}  // namespace lockstep
