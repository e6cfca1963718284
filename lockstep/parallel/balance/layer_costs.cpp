#include "lockstep/parallel/balance/layer_costs.h"

#include <algorithm>
#include <functional>
#include <limits>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/ones_like.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <torch/csrc/autograd/autograd.h>

#include "lockstep/core/error.h"
#include "lockstep/core/stopwatch.h"
#include "lockstep/parallel/balance/preserved_state.h"
#include "lockstep/parallel/place/memory_meter.h"
#include "lockstep/parallel/schedule/partition.h"

namespace lockstep {
namespace {

using Layers = torch::OrderedDict<std::string, torch::nn::AnyModule>;
using torch::Tensor;

std::vector<torch::nn::Module*> modules_of(const Layers& layers) {
  std::vector<torch::nn::Module*> modules;
  for (const auto& layer : layers) modules.push_back(layer.value().ptr().get());
  return modules;
}

void check_no_gradients(const Layers& layers) {
  for (const auto& layer : layers) {
    for (const auto& parameter : layer.value().ptr()->named_parameters()) {
      check(!parameter.value().grad().defined(),
          "balance: a parameter has a gradient already: ", layer.key(), ".", parameter.key(),
          "; measure before training, or after zero_grad()");
    }
  }
}

void synchronize(const torch::Device& device) {
  if (device.is_cpu()) return;
  const c10::impl::VirtualGuardImpl guard(device.type());
  guard.synchronizeDevice(device.has_index() ? device.index() : guard.getDevice().index());
}

// The input as a stage would get it: no history, but with a gradient if the layers before have
// parameters. A layer may change its input in place, which a leaf would forbid: hence the clone.
struct LayerInput {
  explicit LayerInput(const Tensor& from)
      : leaf(from.detach().requires_grad_(from.requires_grad())), value(leaf.clone()) {}

  Tensor leaf;
  Tensor value;
};

Tensor run_forward(torch::nn::AnyModule layer, const std::string& name, const Tensor& input) {
  auto output = layer.any_forward(input);
  const Tensor* tensor = output.try_get<Tensor>();
  check(tensor != nullptr, "balance: layer ", name, " must return a tensor to be measured");
  return *tensor;
}

// autograd::grad leaves the parameters' own gradients, and hooks on them, alone.
void run_backward(const torch::nn::Module& layer, const Tensor& leaf, const Tensor& output) {
  if (!output.requires_grad()) return;
  std::vector<Tensor> inputs;
  if (leaf.requires_grad()) inputs.push_back(leaf);
  for (const Tensor& parameter : layer.parameters()) {
    if (parameter.requires_grad()) inputs.push_back(parameter);
  }
  if (inputs.empty()) return;
  torch::autograd::grad({output}, inputs, {at::ones_like(output)}, false, false, true);
}

double seconds_of(const torch::nn::AnyModule& layer, const std::string& name, Tensor& value) {
  const LayerInput input(value);
  synchronize(input.value.device());
  const Stopwatch stopwatch;
  const Tensor output = run_forward(layer, name, input.value);
  run_backward(*layer.ptr(), input.leaf, output);
  synchronize(output.device());
  const double seconds = stopwatch.seconds();
  value = output.detach().requires_grad_(output.requires_grad());
  return seconds;
}

double bytes_of_parameters(const torch::nn::Module& module) {
  double bytes = 0;
  for (const Tensor& parameter : module.parameters()) {
    bytes += static_cast<double>(parameter.nbytes());
  }
  return bytes;
}

double bytes_of(const torch::nn::AnyModule& layer, const std::string& name, Tensor& value) {
  const LayerInput input(value);
  const MemoryMeter meter;
  const Tensor output = run_forward(layer, name, input.value);
  const auto bytes = static_cast<double>(meter.total().live);
  value = output.detach().requires_grad_(output.requires_grad());
  return bytes;
}

using Measurement = std::function<double(const torch::nn::AnyModule&, const std::string&, Tensor&)>;

// Sends the sample through the layers once.
std::vector<double> measure(const Layers& layers, Tensor value, const Measurement& measurement) {
  const torch::AutoGradMode with_gradients(true);
  std::vector<double> costs;
  for (const auto& layer : layers) {
    costs.push_back(measurement(layer.value(), layer.key(), value));
  }
  return costs;
}

}  // namespace

std::vector<double> costs_by_time(const Layers& layers, const Tensor& sample, int passes) {
  check(passes >= 1, "costs_by_time: at least 1 pass is needed: ", passes);
  check_no_gradients(layers);
  std::vector<double> costs(layers.size(), std::numeric_limits<double>::infinity());
  with_preserved_state(modules_of(layers), sample.device(), [&] {
    for (int pass = 0; pass < passes; ++pass) {
      const auto times = measure(layers, sample, seconds_of);
      std::transform(times.begin(), times.end(), costs.begin(), costs.begin(),
          [](double a, double b) { return std::min(a, b); });
    }
  });
  return costs;
}

std::vector<double> costs_by_size(
    const Layers& layers, const Tensor& sample, double copies_of_parameters) {
  check(copies_of_parameters >= 0,
      "costs_by_size: the copies of the parameters must be 0 or more: ", copies_of_parameters);
  check_no_gradients(layers);
  std::vector<double> costs;
  with_preserved_state(
      modules_of(layers), sample.device(), [&] { costs = measure(layers, sample, bytes_of); });
  for (std::size_t index = 0; index < costs.size(); ++index) {
    costs[index] += copies_of_parameters * bytes_of_parameters(*layers[index].value().ptr());
  }
  return costs;
}

std::vector<int> balance_by_time(
    const Layers& layers, const Tensor& sample, int stages, int passes) {
  return partition(costs_by_time(layers, sample, passes), stages);
}

std::vector<int> balance_by_size(
    const Layers& layers, const Tensor& sample, int stages, double copies_of_parameters) {
  return partition(costs_by_size(layers, sample, copies_of_parameters), stages);
}

}  // namespace lockstep
