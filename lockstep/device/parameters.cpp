#include "lockstep/device/parameters.h"

#include <cstddef>
#include <map>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include <ATen/ops/stack.h>

#include "lockstep/core/error.h"

namespace lockstep {
namespace {

using Counts = std::vector<StepsOnDevice*>;

std::map<std::string, Counts> unsettled_by_device(const torch::optim::Optimizer& optimizer) {
  std::map<std::string, Counts> counts;
  for (const auto& [parameter, state] : optimizer.state()) {
    auto* const steps = dynamic_cast<StepsOnDevice*>(state.get());
    if (steps != nullptr && steps->made.defined())
      counts[steps->made.device().str()].push_back(steps);
  }
  return counts;
}

// One copy for all parameters of a device.
void settle(const Counts& counts) {
  std::vector<torch::Tensor> made;
  for (const StepsOnDevice* count : counts) made.push_back(count->made);
  const torch::Tensor values = at::stack(made).cpu();
  for (std::size_t i = 0; i < counts.size(); ++i) {
    counts[i]->set_steps(static_cast<std::int64_t>(values.const_data_ptr<float>()[i]));
    counts[i]->made.reset();
  }
}

}  // namespace

std::vector<torch::Tensor> distinct(const std::vector<torch::Tensor>& tensors) {
  std::unordered_set<const void*> seen;
  std::vector<torch::Tensor> firsts;
  for (const torch::Tensor& tensor : tensors)
    if (seen.insert(tensor.unsafeGetTensorImpl()).second) firsts.push_back(tensor);
  return firsts;
}

std::vector<torch::Tensor> parameters_of(const torch::nn::Module& module) {
  return distinct(module.parameters());
}

void list_once(std::vector<torch::optim::OptimizerParamGroup>& groups) {
  std::unordered_map<const void*, std::size_t> group_of;
  for (std::size_t group = 0; group < groups.size(); ++group) {
    auto& parameters = groups[group].params();
    if (auto firsts = distinct(parameters); firsts.size() != parameters.size())
      parameters = std::move(firsts);
    for (const torch::Tensor& parameter : parameters) {
      const auto [first, is_new] = group_of.emplace(parameter.unsafeGetTensorImpl(), group);
      check(is_new, "optimizer: a parameter of shape ", parameter.sizes(),
          " is in the param groups ", first->second, " and ", group, "; list it in one of them");
    }
  }
}

void settle_steps(const torch::optim::Optimizer& optimizer) {
  for (const auto& [device, counts] : unsettled_by_device(optimizer)) settle(counts);
}

}  // namespace lockstep
