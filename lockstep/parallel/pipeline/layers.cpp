#include "lockstep/parallel/pipeline/layers.h"

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "lockstep/core/error.h"
#include "lockstep/device/parameters.h"
#include "lockstep/parallel/schedule/partition.h"

namespace lockstep {
namespace {

void check_layers_differ(const Layers& layers) {
  std::map<const torch::nn::Module*, std::string> seen;
  for (const auto& layer : layers) {
    const auto [first, fresh] = seen.emplace(layer.value().ptr().get(), layer.key());
    check(fresh, "pipeline: layer ", layer.key(), " is the same module as layer ", first->second,
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
        check(fresh || first->second.first == stage, "pipeline: ", name, " in stage ", stage,
            " is the same parameter as ", first->second.second, " in stage ", first->second.first,
            "; put both layers into one stage");
      }
    }
  }
}

thread_local SkipTable* current_table = nullptr;

SkipTable& table() {
  thread_local SkipTable own;
  return current_table != nullptr ? *current_table : own;
}

}  // namespace

std::int64_t ChainInput::batch_size() const {
  check(
      !tensors.empty() && tensors.front().dim() > 0, "pipeline: the input needs a batch dimension");
  const std::int64_t size = tensors.front().size(0);
  for (const torch::Tensor& tensor : tensors)
    check(tensor.dim() > 0 && tensor.size(0) == size, "pipeline: inputs ", tensors.front().sizes(),
        " and ", tensor.sizes(), " must have the same batch size");
  return size;
}

bool ChainInput::requires_grad() const {
  return std::ranges::any_of(tensors, &torch::Tensor::requires_grad);
}

torch::nn::AnyValue ChainInput::value() const {
  return tensors.size() == 1 ? torch::nn::AnyValue(torch::Tensor(tensors.front()))
                             : torch::nn::AnyValue(std::vector<torch::Tensor>(tensors));
}

Layers layers_of(const torch::nn::Sequential& net) {
  Layers layers;
  const auto names = net->named_children().keys();
  std::size_t index = 0;
  for (const auto& layer : *net) layers.insert(names.at(index++), layer);
  return layers;
}

std::vector<Layers> cut(const Layers& layers, const std::vector<int>& balance) {
  check_balance(balance, layers.size(), static_cast<int>(balance.size()));
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
  for (const auto& layer : layers) {
    const auto of_layer = layer.value().ptr()->parameters();
    parameters.insert(parameters.end(), of_layer.begin(), of_layer.end());
  }
  return distinct(parameters);
}

torch::Tensor StashImpl::forward(torch::Tensor input) {
  table()[name_] = input;
  return input;
}

torch::Tensor PopImpl::forward(torch::Tensor input) {
  auto kept = table().extract(name_);
  if (kept.empty()) throw Error(concat("Pop: nothing was kept under the name ", name_));
  return join_ ? join_(std::move(input), kept.mapped()) : input + kept.mapped();
}

SkipScope::SkipScope(SkipTable& table) : before_(std::exchange(current_table, &table)) {}

SkipScope::~SkipScope() { current_table = before_; }

std::vector<std::vector<std::string>> skips_across(const std::vector<Layers>& stages) {
  std::vector<std::vector<std::string>> crossing;
  std::set<std::string> open, used;
  const auto read = [&](const torch::nn::Module& module) {
    if (const auto* const stash = dynamic_cast<const StashImpl*>(&module)) {
      check(used.insert(stash->skip_name()).second, "pipeline: two Stash layers have the name ",
          stash->skip_name());
      open.insert(stash->skip_name());
    } else if (const auto* const pop = dynamic_cast<const PopImpl*>(&module)) {
      check(open.erase(pop->skip_name()) == 1, "pipeline: the Pop ", pop->skip_name(),
          " has no unused Stash before it");
    }
  };
  for (const Layers& stage : stages) {
    for (const auto& layer : stage) {
      for (const auto& module : layer.value().ptr()->modules()) read(*module);
    }
    crossing.emplace_back(open.begin(), open.end());
  }
  check(open.empty(), "pipeline: the Stash ", open.empty() ? "" : *open.begin(),
      " has no Pop after it");
  crossing.pop_back();
  return crossing;
}

}  // namespace lockstep
