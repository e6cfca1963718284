#include "lockstep/nn/models/plugin_model.h"

#include <exception>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include <c10/util/Exception.h>

#include "lockstep/core/error.h"
#include "lockstep/core/text.h"
#include "lockstep/device/memory_error.h"
#include "lockstep/nn/models/clone.h"

namespace lockstep::nn {
namespace {

using Tensors = std::vector<torch::Tensor>;

// A lack of memory, a device or another rank that fails are not the net's mistake.
bool is_from_outside(const c10::Error& error) {
  return as_memory_error(error) || dynamic_cast<const c10::AcceleratorError*>(&error) != nullptr ||
         dynamic_cast<const c10::DistError*>(&error) != nullptr;
}

std::string inputs_text(const Tensors& inputs) {
  std::vector<std::string> texts;
  for (const torch::Tensor& input : inputs)
    texts.push_back(concat(input.sizes(), " of ", input.scalar_type()));
  return joined(texts);
}

// Batches have channels last in memory, which is faster than LibTorch's usual order. What
// convolutions make of them has so too, and there view() throws.
torch::Tensor explained(const std::string& name,
    const std::function<torch::Tensor(Tensors)>& forward, const Tensors& inputs) {
  try {
    return forward(inputs);
  } catch (const c10::Error& error) {
    if (is_from_outside(error)) throw;
    const std::string why = error.what_without_backtrace();
    const bool is_view = why.find("view size is not compatible") != std::string::npos;
    check(!is_view, "plugin: ", name,
        " calls view() on a tensor with channels last in memory, as batches are: call reshape() in "
        "its place, or contiguous() before it");
    throw InvalidArgument(concat("plugin: ", name, " fails on ", inputs_text(inputs), ": ", why));
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
                    const Tensors& inputs) { return explained(name, forward, inputs); };
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

torch::Tensor PluginModelImpl::forward_all(std::vector<torch::Tensor> inputs) {
  const std::int64_t batch = inputs.front().size(0);
  return checked(net_.forward(std::move(inputs)), batch);
}

Layers PluginModelImpl::layers() const {
  if (!net_.layers.is_empty()) return net_.layers;
  Layers whole;
  whole.insert("net", layer_of([forward = net_.forward](
                                   torch::Tensor images) { return forward({std::move(images)}); }));
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
