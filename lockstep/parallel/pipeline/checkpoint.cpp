#include "lockstep/parallel/pipeline/checkpoint.h"

#include <algorithm>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include <ATen/core/Generator.h>
#include <ATen/ops/empty.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/grad_mode.h>
#include <torch/custom_class.h>

#include "lockstep/core/error.h"
#include "lockstep/device/host_tensor.h"
#include "lockstep/parallel/operators/operator_rules.h"
#include "lockstep/parallel/pipeline/links.h"
#include "lockstep/parallel/pipeline/stage_input.h"
#include "lockstep/parallel/place/place.h"

namespace lockstep {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;
using Tensors = std::vector<torch::Tensor>;

/// A layer between its two forwards.
struct Recomputation : torch::CustomClassHolder {
  torch::nn::AnyModule layer;
  ValueForm input_form = ValueForm::kTensor, output_form = ValueForm::kTensor;
  Tensors inputs;  // detached, in the memory of the given ones
  std::optional<Unchanged> unchanged;
  ThreadModes modes;
  std::vector<at::Generator> drawn_from, generators;  // by the first forward, and as they were

  static Recomputation& of(AutogradContext& context) {
    return *static_cast<Recomputation*>(context.saved_data["layer"].toCapsule().get());
  }

  Tensors compute(const Tensors& given) {
    auto output = layer.any_forward(value_of(input_form, given));
    return tensors_of(output, output_form);
  }

  void begin(const Tensors& given) {
    for (const torch::Tensor& tensor : given)
      inputs.push_back(tensor.detach().set_requires_grad(tensor.requires_grad()));
    unchanged.emplace(inputs);
    drawn_from = generators_of_thread(given.front().device());
    generators = copies_of(drawn_from);
  }

  // Of leaves, as what a stage of a pipeline takes: layers leave what comes from outside alone.
  Tensors compute_first() {
    // As the second one: operators may draw otherwise within a stream than without.
    const RandomStream stream(std::exchange(drawn_from, {}));
    Tensors outputs = compute(inputs);
    for (torch::Tensor& output : outputs) {
      const bool is_handed_on = std::ranges::any_of(
          inputs, [&](const torch::Tensor& input) { return input.is_same(output); });
      if (is_handed_on) output = output.detach();
    }
    return outputs;
  }

  Tensors compute_again(const StageInput& input) {
    unchanged->verify();
    const OwnCasts casts;
    const ThreadModes::Scope scope(modes);
    const torch::AutoGradMode with_gradients(true);
    const RandomStream stream(generators);
    FrozenStatistics frozen;
    const BatchNormScope norms(frozen);
    const BatchCounters counters({layer.ptr().get()});
    Tensors outputs = compute(input.seen);
    counters.restore();
    return outputs;
  }

  Tensors backward(const variable_list& gradients) {
    // A leaf's gradient is wanted as that of the given tensor.
    const StageInput input = [&] {
      const torch::AutoGradMode with_gradients(true);
      return StageInput(inputs, inputs.front().device());
    }();
    const Tensors outputs = compute_again(input);
    Tensors roots, arriving;
    for (std::size_t i = 0; i < outputs.size(); ++i) {
      if (!outputs[i].requires_grad() || !gradients[i].defined()) continue;
      roots.push_back(outputs[i]);
      arriving.push_back(gradients[i]);
    }
    const AutocastOff off;
    if (!roots.empty()) torch::autograd::backward(roots, arriving);
    return input.gradients();
  }
};

struct Checkpointed : torch::autograd::Function<Checkpointed> {
  // `anchor` requires a gradient, so that the outputs do, though the inputs need not.
  static variable_list forward(AutogradContext* context, at::TensorList /*inputs*/,
      const torch::Tensor& /*anchor*/, c10::intrusive_ptr<Recomputation> layer) {
    Recomputation& own = *layer;
    context->saved_data["layer"] = c10::IValue::make_capsule(std::move(layer));
    context->set_materialize_grads(false);
    return own.compute_first();
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    check(!torch::GradMode::is_enabled(),
        "checkpoint: a second derivative (create_graph) of a layer that is computed again cannot "
        "be "
        "computed");
    check(torch::autograd::Engine::get_default_engine().is_checkpoint_valid(),
        "checkpoint: parameters get their gradients by backward() alone, not by "
        "torch::autograd::grad(), nor in a replica of DataParallel");
    variable_list all = Recomputation::of(*context).backward(gradients);
    all.resize(all.size() + 2);  // of the anchor and the layer
    return all;
  }
};

}  // namespace

torch::nn::AnyValue checkpoint(torch::nn::AnyModule layer, torch::nn::AnyValue input) {
  if (!torch::GradMode::is_enabled()) return layer.any_forward(std::move(input));
  check(!has_batch_norm_rule(),
      "checkpoint: batch norms that join their statistics over ranks cannot be computed again");
  auto own = c10::make_intrusive<Recomputation>();
  const Tensors inputs = tensors_of(input, own->input_form);
  check(!inputs.empty(), "checkpoint: the layer takes no tensor");
  own->layer = std::move(layer);
  own->begin(inputs);
  const OwnBuffers buffers({own->layer.ptr().get()});
  const auto anchor = at::empty({0}, on_host(torch::kFloat)).requires_grad_();
  const Tensors outputs = Checkpointed::apply(at::TensorList(inputs), anchor, own);
  buffers.check_unchanged();
  return value_of(own->output_form, outputs);
}

torch::Tensor checkpoint(torch::nn::AnyModule layer, const torch::Tensor& input) {
  auto value = checkpoint(std::move(layer), torch::nn::AnyValue(torch::Tensor(input)));
  return value.get<torch::Tensor>();
}

void check_can_be_computed_again(const Layers& layers) {
  for (const auto& layer : layers)
    for (const auto& module : layer.value().ptr()->modules())
      check(module->as<StashImpl>() == nullptr && module->as<PopImpl>() == nullptr,
          "checkpoint: ", layer.key(),
          " passes a skip connection on beside the chain, so layers cannot be "
          "computed again one by one; cut the model into stages, which can");
}

}  // namespace lockstep
