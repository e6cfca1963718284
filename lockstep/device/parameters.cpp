#include "lockstep/device/parameters.h"

#include <cstddef>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "lockstep/core/error.h"

namespace lockstep {

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

}  // namespace lockstep
