#include "lockstep/parallel/data_parallel/replica.h"

#include <algorithm>
#include <exception>
#include <mutex>
#include <stdexcept>
#include <string>
#include <system_error>
#include <type_traits>
#include <typeinfo>
#include <utility>

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <c10/util/Exception.h>
#include <torch/csrc/autograd/grad_mode.h>
#include <torch/csrc/autograd/variable.h>

#include "lockstep/core/error.h"
#include "lockstep/core/text.h"
#include "lockstep/parallel/data_parallel/scatter.h"
#include "lockstep/parallel/place/place.h"

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

/// Throws the text as the one of the kinds that the exception exactly is, if any.
template <typename... Kinds>
void throw_as_one_of(const std::exception& error, const std::string& text) {
  const auto throw_if = [&]<typename Kind>(std::type_identity<Kind>) {
    if (typeid(error) == typeid(Kind)) throw Kind(text);
  };
  (throw_if(std::type_identity<Kinds>()), ...);
}

/// Throws the exception again, with the number and place of the replica that threw it.
[[noreturn]] void throw_from_replica(
    const std::exception_ptr& exception, std::size_t replica, const Place& place) {
  const std::string who = concat("replica ", replica, " (", describe(place), "): ");
  try {
    std::rethrow_exception(exception);
  } catch (c10::Error& error) {
    error.add_context(concat("in ", who.substr(0, who.size() - 2)));
    throw;
  } catch (const std::system_error& error) {
    throw std::system_error(error.code(), who + error.what());
  } catch (const std::exception& error) {
    throw_as_one_of<InvalidArgument, DataError, CommError, TimeoutError, DivergedError, Error,
        std::invalid_argument, std::domain_error, std::length_error, std::out_of_range,
        std::logic_error, std::range_error, std::overflow_error, std::underflow_error,
        std::runtime_error>(error, who + error.what());
    std::throw_with_nested(Error(who + error.what()));
  } catch (...) {
    std::throw_with_nested(Error(who + "an exception of an unknown type"));
  }
}

/// Waits for a worker and returns what its task threw.
std::exception_ptr outcome(PlaceWorker& worker) {
  try {
    worker.wait();
  } catch (...) {
    return std::current_exception();
  }
  return nullptr;
}

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

bool have_equal_modes(const std::vector<std::shared_ptr<torch::nn::Module>>& a,
    const std::vector<std::shared_ptr<torch::nn::Module>>& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(),
      [](const auto& x, const auto& y) { return x->is_training() == y->is_training(); });
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

ReplicaThreads::ReplicaThreads(const std::vector<Place>& places) {
  check(!places.empty(), "DataParallel: there must be at least one place");
  for (std::size_t i = 0; i < places.size(); ++i) {
    workers_.push_back(std::make_unique<PlaceWorker>(places[i], concat("replica ", i)));
  }
}

void ReplicaThreads::run(std::size_t count, const std::function<void(std::size_t)>& task) {
  const std::lock_guard lock(mutex_);
  const ThreadModes modes;
  for (std::size_t i = 0; i < count; ++i) {
    workers_[i]->begin([&, i] {
      const ThreadModes::Scope scope(modes);
      task(i);
    });
  }
  // All must have stopped before anything is thrown: they use what the caller owns.
  std::vector<std::exception_ptr> outcomes;
  for (std::size_t i = 0; i < count; ++i) outcomes.push_back(outcome(*workers_[i]));
  for (std::size_t i = 0; i < count; ++i) {
    if (outcomes[i]) throw_from_replica(outcomes[i], i, place(i));
  }
}

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
