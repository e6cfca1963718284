#include "lockstep/nn/models/plugin_library.h"

#include <algorithm>
#include <dlfcn.h>
#include <exception>
#include <filesystem>
#include <functional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <ATen/core/grad_mode.h>
#include <c10/util/Exception.h>

#include "lockstep/core/error.h"
#include "lockstep/core/text.h"
#include "lockstep/device/host_memory.h"
#include "lockstep/nn/autocast.h"
#include "lockstep/nn/models/catalogue.h"
#include "lockstep/nn/models/model.h"

namespace lockstep::nn {

bool is_from_outside(const std::exception& error) {
  return as_memory_error(error) || dynamic_cast<const Error*>(&error) != nullptr ||
         dynamic_cast<const c10::AcceleratorError*>(&error) != nullptr ||
         dynamic_cast<const c10::DistError*>(&error) != nullptr;
}

namespace {

using Tensors = std::vector<torch::Tensor>;

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

namespace {

torch::Tensor value_of_function(
    const PluginLoss& loss, const torch::Tensor& scores, const torch::Tensor& labels) {
  const auto refuse = [&](const std::string& why) {
    throw InvalidArgument(concat("plugin: the loss ", loss.name, " of scores ", scores.sizes(),
        " and labels ", labels.sizes(), " failed: ", why));
  };
  try {
    return loss.mean(scores, labels);
  } catch (const std::exception& error) {
    if (as_memory_error(error)) throw;
    refuse(error.what());
  } catch (...) {
    refuse("it threw what is no std::exception");
  }
  return {};
}

std::string text_of(const torch::Tensor& value) {
  if (!value.defined()) return "an undefined tensor";
  return concat("a tensor of ", value.sizes(), ", ", value.scalar_type(), ", on ", value.device());
}

}  // namespace

torch::Tensor loss_by(
    const PluginLoss& loss, const torch::Tensor& scores, const torch::Tensor& labels) {
  const Autocast whole(scores.device().type(), at::kBFloat16, /*enabled=*/false);
  torch::Tensor value = value_of_function(loss, scores, labels);
  check(value.defined() && value.dim() == 0 && at::isFloatingType(value.scalar_type()) &&
            value.device() == scores.device(),
      "plugin: the loss ", loss.name, " must return the mean over the batch, one number on ",
      scores.device(), " as a tensor of [], not ", text_of(value));
  check(value.requires_grad() || !scores.requires_grad() || !at::GradMode::is_enabled(),
      "plugin: the loss ", loss.name,
      " has no gradient: compute it from the scores by LibTorch's operators, without item() or "
      "detach()");
  return value;
}

namespace {

// Everything that the plugins of this process offer.
PluginContents& loaded() {
  static PluginContents all{kPluginAbi, {}, {}, {}, {}};
  return all;
}

// Appends what is offered under names that are free.
template <typename Offered>
void append(const std::string& path, const std::vector<Offered>& offered,
    std::vector<std::string> names, std::vector<Offered>& all) {
  for (const Offered& each : all) names.push_back(each.name);
  for (const Offered& each : offered) {
    check(!each.name.empty() && std::ranges::find(names, each.name) == names.end(), "plugin ", path,
        ": a name is taken or empty: ", each.name);
    names.push_back(each.name);
    all.push_back(each);
  }
}

// A name without a slash would be looked for in the system's folders.
std::string path_to_open(const std::string& path) {
  check(std::filesystem::is_regular_file(path), "plugin ", path, ": there is no such file");
  return std::filesystem::absolute(path);
}

// All symbols are bound now: one that is missing is named here and not in the middle of training.
const PluginContents& contents_of(const std::string& path) {
  void* library = ::dlopen(path_to_open(path).c_str(), RTLD_NOW | RTLD_LOCAL);
  check(library != nullptr, "plugin ", path,
      " cannot be loaded: ", library != nullptr ? "" : ::dlerror());
  using Contents = const PluginContents* (*)();
  const auto contents = reinterpret_cast<Contents>(::dlsym(library, "lockstep_plugin"));
  check(contents != nullptr, "plugin ", path,
      " offers nothing: it has no LOCKSTEP_MODEL, LOCKSTEP_DATA, LOCKSTEP_LOSS or LOCKSTEP_TASK");
  return *contents();
}

void check_version(const std::string& path, const PluginContents& contents) {
  check(std::string_view(contents.made_for) == kPluginAbi, "plugin ", path, " was compiled for ",
      contents.made_for, ", but this is ", kPluginAbi, "; compile it again");
}

}  // namespace

void load_plugin(const std::string& path) {
  const PluginContents& contents = contents_of(path);
  check_version(path, contents);
  append(path, contents.models, model_names(), loaded().models);
  append(path, contents.sets, {}, loaded().sets);
  append(path, contents.losses, loss_names(), loaded().losses);
  append(path, contents.tasks, all_names<TaskKind>(), loaded().tasks);
}

const std::vector<PluginModel>& plugin_models() { return loaded().models; }

const std::vector<PluginData>& plugin_sets() { return loaded().sets; }

const std::vector<PluginLoss>& plugin_losses() { return loaded().losses; }

const std::vector<PluginTask>& plugin_tasks() { return loaded().tasks; }

}  // namespace lockstep::nn
