#include "lockstep/parallel/balance/layer_costs.h"

#include <algorithm>
#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_set>
#include <utility>
#include <vector>

#include <ATen/Context.h>
#include <ATen/autocast_mode.h>
#include <ATen/core/Generator.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/ones_like.h>
#include <c10/core/Device.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/nn/module.h>
#include <torch/nn/modules/container/any.h>
#include <torch/types.h>

#include "lockstep/core/error.h"
#include "lockstep/core/stopwatch.h"
#include "lockstep/device/accelerator.h"
#include "lockstep/liveness/own_slot.h"
#include "lockstep/parallel/pipeline/layers.h"
#include "lockstep/parallel/pipeline/links.h"
#include "lockstep/parallel/pipeline/stage_input.h"
#include "lockstep/parallel/pipeline/weight_backward.h"
#include "lockstep/parallel/place/memory_meter.h"
#include "lockstep/parallel/schedule/partition.h"

namespace lockstep {
namespace {

using torch::Tensor;
using Tensors = std::vector<Tensor>;

std::uint32_t version_of(const Tensor& tensor) {
  return tensor.unsafeGetTensorImpl()->version_counter().current_version();
}

/// The state that measuring may change: values of parameters and buffers, the modules' modes, the
/// random numbers of the CPU and of the device.
class PreservedState {
 public:
  PreservedState(const Layers& layers, const c10::Device& device) {
    for (const auto& layer : layers) {
      torch::nn::Module& module = *layer.value().ptr();
      for (const Tensor& tensor : module.parameters()) save(tensor);
      for (const Tensor& tensor : module.buffers()) save(tensor);
      modes_.emplace_back(&module, module.is_training());
      for (const auto& child : module.modules(/*include_self=*/false))
        modes_.emplace_back(child.get(), child->is_training());
    }
    save(at::globalContext().defaultGenerator(c10::Device(c10::kCPU)));
    if (!device.is_cpu()) save(at::globalContext().defaultGenerator(device));
  }

  // Only what was written to is put back, so that graphs which hold the rest stay usable. The
  // version alone is not enough: batch norm writes its statistics without counting.
  void restore() {
    const torch::NoGradGuard no_gradients;
    for (SavedTensor& saved : tensors_) {
      if (version_of(saved.tensor) != saved.version || !saved.tensor.equal(saved.value))
        saved.tensor.copy_(saved.value);
    }
    for (const auto& [module, is_training] : modes_) module->train(is_training);
    for (auto& [generator, state] : generators_) {
      const std::lock_guard lock(generator.mutex());
      generator.set_state(state);
    }
  }

 private:
  struct SavedTensor {
    Tensor tensor, value;
    std::uint32_t version;
  };

  void save(const Tensor& tensor) {
    if (tensor.defined()) tensors_.push_back({tensor, tensor.detach().clone(), version_of(tensor)});
  }

  void save(at::Generator generator) {
    const std::lock_guard lock(generator.mutex());
    generators_.emplace_back(generator, generator.get_state());
  }

  std::vector<SavedTensor> tensors_;
  // A parent before its children: train() reaches down.
  std::vector<std::pair<torch::nn::Module*, bool>> modes_;
  std::vector<std::pair<at::Generator, Tensor>> generators_;
};

/// A layer between its forward and its backward, by the calls that a stage of a pipeline makes:
/// what is measured of them is what a pipeline will execute. Autocast is for forward alone.
class LayerPass {
 public:
  /// The input shares its memory, as between layers of one net, and gets gradients where it
  /// requires them. `name` is for messages.
  LayerPass(std::string name, torch::nn::AnyModule layer, const Payload& input)
      : name_(std::move(name)),
        layer_(std::move(layer)),
        form_(input.form),
        input_(input.values, input.values.front().device()) {}

  torch::Device device() const { return input_.leaves.front().device(); }

  /// Throws InvalidArgument if the layer gives no tensors.
  void forward() {
    auto output = layer_.any_forward(value_of(form_, input_.seen));
    try {
      outputs_ = tensors_of(output, output_form_);
    } catch (const InvalidArgument& error) {
      throw InvalidArgument(
          concat("balance: layer ", name_, " cannot be measured: ", error.what()));
    }
    for (const Tensor& tensor : outputs_)
      if (tensor.requires_grad()) roots_.push_back(tensor);
  }

  /// Returns what the next layer takes.
  Payload output() const {
    Payload output{output_form_, {}, 0};
    for (const Tensor& tensor : outputs_)
      output.values.push_back(tensor.detach().requires_grad_(tensor.requires_grad()));
    return output;
  }

  /// Returns the size of what the next layer takes.
  std::int64_t output_bytes() const {
    std::int64_t bytes = 0;
    for (const Tensor& tensor : outputs_) bytes += static_cast<std::int64_t>(tensor.nbytes());
    return bytes;
  }

  /// Return whether there is something to compute in backward, and what.
  bool has_backward() const { return !roots_.empty(); }
  bool has_input_gradient() const { return has_backward() && !input_.wanting().empty(); }
  bool has_parameter_gradients() const {
    return has_backward() &&
           std::ranges::any_of(layer_.ptr()->parameters(), &Tensor::requires_grad);
  }

  /// Accumulates all gradients; the argument has one for each tensor of the output, of which those
  /// that nothing is known of are ones. Once.
  void backward(const Tensors& gradients) {
    const AutocastOff off;
    torch::autograd::backward(roots_, of_roots(gradients));
  }

  /// Accumulate that of the input, then those of the parameters; see Note [Backward in two parts].
  void backward_input(const Tensors& gradients) {
    const AutocastOff off;
    weights_ = backward_inputs(roots_, of_roots(gradients), input_.wanting());
  }
  void backward_weight() {
    const AutocastOff off;
    weights_.run();
  }

  /// Returns the gradients of the input, undefined where there is none.
  Tensors input_gradients() const { return input_.gradients(); }

 private:
  Tensors of_roots(const Tensors& gradients) const {
    Tensors arriving;
    for (std::size_t i = 0; i < outputs_.size(); ++i) {
      if (!outputs_[i].requires_grad()) continue;
      const bool is_known = i < gradients.size() && gradients[i].defined();
      arriving.push_back(is_known ? gradients[i] : at::ones_like(outputs_[i]));
    }
    return arriving;
  }

  std::string name_;
  torch::nn::AnyModule layer_;
  ValueForm form_, output_form_ = ValueForm::kTensor;
  StageInput input_;
  Tensors outputs_, roots_;  // with their graph
  WeightBackward weights_;
};

void check_no_gradients(const Layers& layers) {
  for (const auto& layer : layers) {
    for (const auto& parameter : layer.value().ptr()->named_parameters()) {
      check(!parameter.value().grad().defined(),
          "balance: a parameter has a gradient already: ", layer.key(), ".", parameter.key(),
          "; measure before training, or after zero_grad()");
    }
  }
}

// Runs a body and puts back what it changed, also if it throws.
void measure(const Layers& layers, const ChainInput& sample, const std::function<void()>& body) {
  check_no_gradients(layers);
  PreservedState state(layers, sample.tensors.front().device());
  try {
    body();
  } catch (...) {
    state.restore();
    throw;
  }
  state.restore();
}

void train(const Layers& layers) {
  for (const auto& layer : layers) layer.value().ptr()->train();
}

/// The gradients that parameters get while it lives; they end with it.
class NewGradients {
 public:
  explicit NewGradients(std::vector<Tensor> parameters) : parameters_(std::move(parameters)) {}
  ~NewGradients() {
    for (const Tensor& parameter : parameters_) parameter.mutable_grad() = Tensor();
  }
  NewGradients(const NewGradients&) = delete;
  NewGradients& operator=(const NewGradients&) = delete;

 private:
  std::vector<Tensor> parameters_;
};

double seconds_of(const LayerPass& pass, const std::function<void()>& work) {
  synchronize(pass.device());
  const Stopwatch stopwatch;
  work();
  synchronize(pass.device());
  return stopwatch.seconds();
}

using PassPointer = std::shared_ptr<LayerPass>;

// Sends a copy of the sample, which a layer may change in place, through the layers once. `forward`
// runs each one's forward; who keeps the pass keeps what its backward needs. Autocast casts the
// parameters anew, as in each step.
void walk(const Layers& layers, const ChainInput& sample,
    const std::function<void(std::size_t index, const PassPointer& pass)>& forward) {
  const torch::AutoGradMode with_gradients(true);
  at::autocast::clear_cache();
  Payload value;
  for (const Tensor& tensor : sample.tensors)
    value.values.push_back(tensor.detach().clone().requires_grad_(tensor.requires_grad()));
  if (value.values.size() != 1) value.form = ValueForm::kVector;
  for (std::size_t index = 0; index < layers.size(); ++index) {
    const auto& layer = layers[index];
    const auto pass = std::make_shared<LayerPass>(layer.key(), layer.value(), value);
    forward(index, pass);
    value = pass->output();
    sign_of_life();
  }
}

/// A step of the whole chain in which every layer is a stage: it finds caches and memory as a step
/// of training does.
class ChainStep {
 public:
  /// Runs the forward.
  ChainStep(const Layers& layers, const ChainInput& sample)
      : gradients_(parameters_of(layers)), times_(layers.size()) {
    walk(layers, sample, [&](std::size_t index, const PassPointer& pass) {
      times_[index].forward = seconds_of(*pass, [&] { pass->forward(); });
      passes_.push_back(pass);
    });
  }

  /// Return the times of forward and of backward: of all of it at once, or, as in zero-bubble
  /// schedules, of the inputs' gradients first, then of the parameters'. A part that has nothing to
  /// compute takes no time. Call only once.
  std::vector<LayerCosts> backward() {
    go_back(false, [](LayerPass& pass, LayerCosts& times, const Tensors& gradients) {
      times.backward = seconds_of(pass, [&] { pass.backward(gradients); });
    });
    return times_;
  }
  std::vector<LayerCosts> backward_in_two_parts() {
    go_back(true, [](LayerPass& pass, LayerCosts& times, const Tensors& gradients) {
      const double seconds = seconds_of(pass, [&] { pass.backward_input(gradients); });
      if (pass.has_input_gradient()) times.backward_input = seconds;
    });
    go_back(false, [](LayerPass& pass, LayerCosts& times, const Tensors&) {
      const double seconds = seconds_of(pass, [&] { pass.backward_weight(); });
      if (pass.has_parameter_gradients()) times.backward_weight = seconds;
    });
    return times_;
  }

 private:
  // Gives each layer the gradient that the one behind it has computed.
  void go_back(bool keeps, const auto& visit) {
    Tensors gradients;
    for (std::size_t index = passes_.size(); index-- > 0;) {
      LayerPass& pass = *passes_[index];
      if (pass.has_backward()) visit(pass, times_[index], gradients);
      gradients = pass.input_gradients();
      if (!keeps) passes_.pop_back();
    }
  }

  NewGradients gradients_;
  std::vector<LayerCosts> times_;
  std::vector<PassPointer> passes_;
};

std::vector<LayerCosts> bytes_of(const Layers& layers, const ChainInput& sample) {
  std::vector<LayerCosts> costs(layers.size());
  std::unordered_set<const void*> seen;  // a weight that layers share is of the first
  walk(layers, sample, [&](std::size_t index, const PassPointer& pass) {
    const MemoryMeter meter;
    pass->forward();
    LayerCosts& own = costs[index];
    own.name = layers[index].key();
    own.activation_bytes = meter.total().live;
    own.output_bytes = pass->output_bytes();
    for (const Tensor& parameter : layers[index].value().ptr()->parameters())
      if (seen.insert(parameter.unsafeGetTensorImpl()).second)
        own.parameter_bytes.push_back(static_cast<std::int64_t>(parameter.nbytes()));
  });
  return costs;
}

double median_of(std::vector<double> times) {
  const auto middle = times.begin() + static_cast<std::ptrdiff_t>(times.size() / 2);
  std::ranges::nth_element(times, middle);
  return *middle;
}

void take_median(std::vector<LayerCosts>& costs, double LayerCosts::*time,
    const std::vector<std::vector<LayerCosts>>& steps) {
  for (std::size_t index = 0; index < costs.size(); ++index) {
    std::vector<double> times;
    for (const auto& step : steps) times.push_back(step[index].*time);
    costs[index].*time = median_of(std::move(times));
  }
}

}  // namespace

std::vector<LayerCosts> layer_costs(const Layers& layers, const ChainInput& sample, int passes) {
  check(passes >= 1, "layer_costs: at least 1 pass is needed: ", passes);
  std::vector<LayerCosts> costs;
  measure(layers, sample, [&] {
    costs = bytes_of(layers, sample);
    std::vector<std::vector<LayerCosts>> whole, halves;
    for (int pass = 0; pass < passes; ++pass) {
      whole.push_back(ChainStep(layers, sample).backward());
      halves.push_back(ChainStep(layers, sample).backward_in_two_parts());
    }
    take_median(costs, &LayerCosts::forward, whole);
    take_median(costs, &LayerCosts::backward, whole);
    take_median(costs, &LayerCosts::backward_input, halves);
    take_median(costs, &LayerCosts::backward_weight, halves);
  });
  return costs;
}

std::vector<double> costs_by_time(const Layers& layers, const ChainInput& sample, int passes) {
  check(passes >= 1, "costs_by_time: at least 1 pass is needed: ", passes);
  std::vector<double> costs(layers.size(), std::numeric_limits<double>::infinity());
  measure(layers, sample, [&] {
    train(layers);
    const auto time = [&](std::size_t index, const PassPointer& pass) {
      const NewGradients gradients(layers[index].value().ptr()->parameters());
      double seconds = seconds_of(*pass, [&] { pass->forward(); });
      if (pass->has_backward()) seconds += seconds_of(*pass, [&] { pass->backward({}); });
      costs[index] = std::min(costs[index], seconds);
    };
    for (int pass = 0; pass < passes; ++pass) walk(layers, sample, time);
  });
  return costs;
}

std::vector<double> costs_by_size(
    const Layers& layers, const ChainInput& sample, double copies_of_parameters) {
  check(copies_of_parameters >= 0,
      "costs_by_size: the copies of the parameters must be 0 or more: ", copies_of_parameters);
  std::vector<double> costs;
  measure(layers, sample, [&] {
    train(layers);
    for (const LayerCosts& layer : bytes_of(layers, sample)) {
      double bytes = static_cast<double>(layer.activation_bytes);
      for (const std::int64_t parameter : layer.parameter_bytes)
        bytes += copies_of_parameters * static_cast<double>(parameter);
      costs.push_back(bytes);
    }
  });
  return costs;
}

std::vector<int> balance_by_time(
    const Layers& layers, const ChainInput& sample, int stages, int passes) {
  return partition(costs_by_time(layers, sample, passes), stages);
}

std::vector<int> balance_by_size(
    const Layers& layers, const ChainInput& sample, int stages, double copies_of_parameters) {
  return partition(costs_by_size(layers, sample, copies_of_parameters), stages);
}

}  // namespace lockstep
