#include "lockstep/nn/models/plugin_model.h"

#include <exception>
#include <functional>
#include <string>
#include <utility>

#include <c10/util/Exception.h>

#include "lockstep/core/error.h"
#include "lockstep/nn/models/clone.h"

namespace lockstep::nn {
namespace {

// Batches have channels last in memory, which is faster than LibTorch's usual order. What
// convolutions make of them has so too, and there view() throws.
torch::Tensor explained(const std::string& name,
    const std::function<torch::Tensor(torch::Tensor)>& forward, torch::Tensor images) {
  try {
    return forward(std::move(images));
  } catch (const c10::Error& error) {
    const std::string why = error.what_without_backtrace();
    if (why.find("view size is not compatible") == std::string::npos) throw;
    throw InvalidArgument(concat("plugin: ", name,
        " calls view() on a tensor with channels last in memory, as batches are: call reshape() in "
        "its place, or contiguous() before it"));
  }
}

PluginNet made(const PluginModel& plugin, std::int64_t classes) {
  const auto refuse = [&](const std::string& why) {
    throw InvalidArgument(
        concat("plugin: ", plugin.name, " for ", classes, " classes cannot be made: ", why));
  };
  PluginNet net;
  try {
    net = plugin.make(classes);
  } catch (const std::exception& error) {
    refuse(error.what());
  } catch (...) {
    refuse("it threw what is no std::exception");
  }
  check(net.module != nullptr, "plugin: ", plugin.name, " is an empty module");
  net.forward = [name = plugin.name, forward = std::move(net.forward)](
                    torch::Tensor images) { return explained(name, forward, std::move(images)); };
  return net;
}

}  // namespace

PluginModelImpl::PluginModelImpl(const PluginModel& plugin, std::int64_t classes)
    : plugin_(plugin), classes_(classes), net_(made(plugin, classes)) {
  for (const auto& item : net_.module->named_parameters(false))
    register_parameter(item.key(), item.value(), item.value().requires_grad());
  for (const auto& item : net_.module->named_buffers(false))
    register_buffer(item.key(), item.value());
  for (const auto& item : net_.module->named_children()) register_module(item.key(), item.value());
}

torch::Tensor PluginModelImpl::checked(torch::Tensor scores, std::int64_t batch) const {
  check(scores.defined() && scores.dim() == 2 && scores.size(0) == batch &&
            scores.size(1) == classes_,
      "plugin: ", plugin_.name, " must return scores of [", batch, ", ", classes_, "], not ",
      scores.defined() ? concat(scores.sizes()) : std::string("an undefined tensor"));
  return scores;
}

torch::Tensor PluginModelImpl::forward(torch::Tensor images) {
  const std::int64_t batch = images.size(0);
  return checked(net_.forward(std::move(images)), batch);
}

Layers PluginModelImpl::layers() const {
  if (!net_.layers.is_empty()) return net_.layers;
  Layers whole;
  whole.insert("net", layer_of(net_.forward));
  return whole;
}

void PluginModelImpl::train(bool on) {
  ModelImpl::train(on);
  net_.module->train(on);
}

std::shared_ptr<torch::nn::Module> PluginModelImpl::clone(
    const std::optional<at::Device>& device) const {
  auto copy = std::make_shared<PluginModelImpl>(plugin_, classes_);
  copy_state(*this, *copy, device);
  return copy;
}

}  // namespace lockstep::nn
