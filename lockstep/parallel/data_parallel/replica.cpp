#include "lockstep/parallel/data_parallel/replica.h"

#include <algorithm>
#include <exception>
#include <mutex>
#include <string>
#include <utility>

#include <ATen/CPUGeneratorImpl.h>
#include <c10/util/Exception.h>
#include <torch/csrc/autograd/variable.h>

#include "lockstep/core/error.h"
#include "lockstep/parallel/data_parallel/copy_together.h"

namespace lockstep::data_parallel {
namespace {

bool can_be_cloned(const torch::nn::Module& module) {
  try {
    return module.clone() != nullptr;
  } catch (const std::exception&) {
    return false;
  }
}

/// Names the innermost sub-module without clone(): those around it fail because of it.
std::string culprit(const torch::nn::Module& module) {
  for (const auto& item : module.named_children()) {
    if (can_be_cloned(*item.value())) continue;
    const std::string inner = culprit(*item.value());
    return inner.empty() ? item.key() : item.key() + "." + inner;
  }
  return "";
}

std::string describe_culprit(const torch::nn::Module& module) {
  const std::string path = culprit(module);
  if (path.empty()) return concat("the module (", module.name(), ")");
  return concat("sub-module ", path, " (", module.named_modules()[path]->name(), ")");
}

/// Returns the first line: the rest of LibTorch's messages says where in its sources they arise.
std::string first_line(const std::string& text) { return text.substr(0, text.find('\n')); }

bool have_equal_modes(const std::vector<std::shared_ptr<torch::nn::Module>>& a,
    const std::vector<std::shared_ptr<torch::nn::Module>>& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(),
      [](const auto& x, const auto& y) { return x->is_training() == y->is_training(); });
}

}  // namespace

std::shared_ptr<torch::nn::Module> clone_module(const torch::nn::Module& module) {
  try {
    return module.clone();
  } catch (const c10::Error& error) {
    throw InvalidArgument(concat("DataParallel: ", describe_culprit(module),
        " cannot be cloned: ", first_line(error.what_without_backtrace()),
        "; derive it from torch::nn::Cloneable, or pass a function that makes another module"));
  }
}

void without_drawing(const std::function<void()>& construct) {
  auto generator = at::detail::getDefaultCPUGenerator();
  const auto state = [&] {
    const std::lock_guard lock(generator.mutex());
    return generator.get_state();
  }();
  construct();
  const std::lock_guard lock(generator.mutex());
  generator.set_state(state);
}

Replica::Replica(std::shared_ptr<torch::nn::Module> module, const torch::nn::Module& original,
    const Place& place, bool is_first)
    : module_(std::move(module)), device_(place.device), is_first_(is_first) {
  check_replica_is_alike(tensors_of(original), tensors_of(*module_));
  check(original.modules(false).size() == module_->modules(false).size(),
      "DataParallel: a replica is not built like the module: it has ",
      module_->modules(false).size(), " sub-modules, the module ", original.modules(false).size());
  tensors_ = tensors_of(*module_);
  copies_.resize(tensors_.size());
  for (std::size_t i = 0; i < tensors_.size(); ++i) {
    repeats_.push_back(first_with(tensors_, tensors_[i].tensor) < i);
  }
}

void Replica::follow(
    const std::vector<ModuleTensor>& originals, const torch::nn::Module& original) {
  // Not at construction: first it is checked that the original is where it should be.
  if (!is_placed_) module_->to(device_);
  is_placed_ = true;
  const std::vector<torch::Tensor> values = values_here(originals);
  for (std::size_t i = 0; i < tensors_.size(); ++i) {
    const torch::Tensor& source = originals[i].tensor;
    torch::Tensor& tensor = tensors_[i].tensor;
    if (!source.defined()) continue;
    const bool shares = !originals[i].is_buffer || is_first_;
    if (shares && source.device() == tensor.device()) {
      share_memory(source, tensor);
    } else {
      copies_[i].update(source, values[i], tensor);
    }
    if (tensor.requires_grad() != source.requires_grad()) {
      tensor.set_requires_grad(source.requires_grad());
    }
  }
  follow_modes(original);
}

std::vector<torch::Tensor> Replica::values_here(const std::vector<ModuleTensor>& originals) const {
  std::vector<torch::Tensor> tensors;
  for (const ModuleTensor& original : originals)
    tensors.push_back(original.tensor.defined() ? original.tensor.detach() : original.tensor);
  return copied_together(tensors, device_);
}

// Outer modules first: train() of a module sets those within it.
void Replica::follow_modes(const torch::nn::Module& original) {
  const auto theirs = original.modules(false);
  const auto ours = module_->modules(false);
  if (module_->is_training() == original.is_training() && have_equal_modes(theirs, ours)) return;
  module_->train(original.is_training());
  for (std::size_t i = 0; i < ours.size(); ++i) {
    if (ours[i]->is_training() != theirs[i]->is_training())
      ours[i]->train(theirs[i]->is_training());
  }
}

torch::autograd::Edge Replica::gradient_edge(std::size_t index) const {
  if (repeats_[index]) return {};
  return torch::autograd::impl::gradient_edge(tensors_[index].tensor);
}

}  // namespace lockstep::data_parallel
