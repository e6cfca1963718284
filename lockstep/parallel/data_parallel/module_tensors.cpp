#include "lockstep/parallel/data_parallel/module_tensors.h"

#include <algorithm>

#include <ATen/core/LegacyTypeDispatch.h>
#include <torch/csrc/autograd/grad_mode.h>
#include <torch/csrc/autograd/variable.h>

#include "lockstep/core/error.h"

namespace lockstep::data_parallel {
namespace {

bool is_same_memory(const torch::Tensor& a, const torch::Tensor& b) {
  return a.is_alias_of(b) && a.storage_offset() == b.storage_offset() && a.sizes() == b.sizes() &&
         a.strides() == b.strides() && a.scalar_type() == b.scalar_type();
}

bool has_same_form(const torch::Tensor& original, const torch::Tensor& copy) {
  return original.sizes() == copy.sizes() && original.strides() == copy.strides() &&
         original.scalar_type() == copy.scalar_type();
}

std::string form_of(const torch::Tensor& tensor) {
  if (!tensor.defined()) return "undefined";
  return concat(tensor.scalar_type(), " ", tensor.sizes());
}

void check_same_form(const ModuleTensor& original, const ModuleTensor& replica) {
  check(original.name == replica.name && form_of(original.tensor) == form_of(replica.tensor),
      "DataParallel: a replica is not built like the module: the module has ", original.name, ", ",
      form_of(original.tensor), ", where the replica has ", replica.name, ", ",
      form_of(replica.tensor));
}

bool has(const std::vector<ModuleTensor>& tensors, const std::string& name) {
  return std::any_of(tensors.begin(), tensors.end(),
      [&](const ModuleTensor& tensor) { return tensor.name == name; });
}

std::string change_of(
    const std::vector<ModuleTensor>& before, const std::vector<ModuleTensor>& now) {
  for (std::size_t i = 0; i < std::max(before.size(), now.size()); ++i) {
    if (i >= now.size()) return before[i].name + " was removed";
    if (i >= before.size()) return now[i].name + " was added";
    if (now[i].name != before[i].name) {
      return has(before, now[i].name) ? before[i].name + " was removed"
                                      : now[i].name + " was added";
    }
    if (!now[i].tensor.is_same(before[i].tensor))
      return now[i].name + " was replaced by another tensor";
  }
  return "";
}

std::string change_of(const NamedModules& before, const NamedModules& now) {
  if (now.size() != before.size())
    return concat("it has ", now.size(), " modules and had ", before.size());
  for (std::size_t i = 0; i < now.size(); ++i) {
    if (now[i].value() != before[i].value())
      return concat("module ", now[i].key(), " was replaced");
  }
  return "";
}

}  // namespace

void check_unchanged(const std::vector<ModuleTensor>& tensors, const NamedModules& modules,
    const torch::nn::Module& now) {
  std::string change = change_of(tensors, tensors_of(now));
  if (change.empty()) change = change_of(modules, now.named_modules());
  check(change.empty(), "DataParallel: the module is not what it was when it was wrapped: ", change,
      "; make such changes before, or wrap it again");
}

std::vector<ModuleTensor> tensors_of(const torch::nn::Module& module) {
  std::vector<ModuleTensor> tensors;
  for (const auto& item : module.named_parameters()) {
    tensors.push_back({item.key(), item.value(), false});
  }
  for (const auto& item : module.named_buffers()) {
    tensors.push_back({item.key(), item.value(), true});
  }
  return tensors;
}

std::size_t first_with(const std::vector<ModuleTensor>& tensors, const torch::Tensor& tensor) {
  std::size_t i = 0;
  while (!tensors[i].tensor.is_same(tensor)) ++i;
  return i;
}

void check_on_device(const std::vector<ModuleTensor>& tensors, torch::Device device) {
  for (const auto& [name, tensor, is_buffer] : tensors) {
    check(!tensor.defined() || tensor.device() == device,
        "DataParallel: ", is_buffer ? "buffer " : "parameter ", name, " is on ",
        tensor.defined() ? tensor.device() : device, ", but the first place is on ", device,
        "; move the module there with module->to(...)");
  }
}

void check_replica_is_alike(
    const std::vector<ModuleTensor>& originals, const std::vector<ModuleTensor>& replica) {
  check(originals.size() == replica.size(),
      "DataParallel: a replica is not built like the module: the module has ", originals.size(),
      " parameters and buffers, the replica ", replica.size());
  for (std::size_t i = 0; i < originals.size(); ++i) {
    check_same_form(originals[i], replica[i]);
    if (!replica[i].tensor.defined()) continue;
    check(!originals[i].tensor.is_same(replica[i].tensor),
        "DataParallel: the function that makes replicas gave the module itself (", replica[i].name,
        "); it must make another one each time");
    const std::size_t first = first_with(replica, replica[i].tensor);
    check(originals[first].tensor.is_same(originals[i].tensor),
        "DataParallel: ", replica[first].name, " and ", replica[i].name,
        " are one tensor in a replica, but two in the module");
  }
}

void share_memory(const torch::Tensor& original, torch::Tensor& replica) {
  if (is_same_memory(original, replica)) return;
  replica.set_data(original.detach());
  if (original.is_inference() || replica.is_inference()) return;
  torch::autograd::impl::set_version_counter(
      replica, torch::autograd::impl::version_counter(original));
}

std::int64_t version_of(const torch::Tensor& tensor) {
  return !tensor.defined() || tensor.is_inference() ? 0 : tensor._version();
}

void ValueCopy::update(
    const torch::Tensor& original, const torch::Tensor& value, torch::Tensor& copy) {
  const torch::NoGradGuard no_grad;
  const std::int64_t version = version_of(original);
  if (!has_same_form(original, copy)) {
    copy.set_data(original.detach().to(copy.device(), original.scalar_type(), false, true));
  } else if (version != version_) {
    copy.copy_(value);
  } else {
    const at::AutoDispatchBelowADInplaceOrView unnoticed;
    copy.copy_(value);
  }
  version_ = version;
}

}  // namespace lockstep::data_parallel
