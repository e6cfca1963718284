// Trains an exported program as Python has trained the module, and compares the outcome: see
// exported_models.py, which writes both files.
//
//     exported_models NET.pt2 EXPECTED.safetensors STEPS LR TOLERANCE [clone]
//
// EXPECTED has the program's inputs as `input.N`, a target of the first output's shape, in
// evaluation the first output before training (`eval.before`), the losses, and parameters and
// buffers afterwards as `after.NAME`. The loss is the mean squared error. Prints one JSON object.
// `clone` trains a copy of the module.

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <iostream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Parallel.h>
#include <torch/nn/functional/loss.h>
#include <torch/optim/sgd.h>

#include "lockstep/core/error.h"
#include "lockstep/core/exit_code.h"
#include "lockstep/core/stopwatch.h"
#include "lockstep/device/parameters.h"
#include "lockstep/formats/weights/weight_file.h"
#include "lockstep/nn/exported/exported_module.h"
#include "lockstep/nn/weights.h"

namespace lockstep::benchmark {
namespace {

using torch::Tensor;

Tensor expected(const TensorFile& file, const std::string& name) {
  const TensorEntry* const entry = file.find(name);
  if (entry == nullptr) throw DataError("exported_models: there is no tensor " + name);
  return nn::tensor_of(*entry);
}

/// The largest difference seen, relative to the largest number of its tensor or 1e-3 of it.
struct Difference {
  double largest = 0;
  std::string of;

  void note(const std::string& name, const Tensor& ours, const Tensor& theirs) {
    check(ours.sizes() == theirs.sizes(), name, " is ", ours.sizes(), ", not ", theirs.sizes());
    if (ours.numel() == 0) return;
    const auto a = ours.detach().to(torch::kDouble), b = theirs.to(torch::kDouble);
    const double scale = std::max(b.abs().max().item<double>(), 1e-3);
    const double difference = (a - b).abs().max().item<double>() / scale;
    check(std::isfinite(difference), name, " is not finite");
    if (difference > largest) {
      largest = difference;
      of = name;
    }
  }
};

struct Work {
  std::string net, expected;
  int steps;
  double lr, tolerance;
  bool clones;
};

nlohmann::json compared(const Work& work) {
  const TensorFile file = read_weights(work.expected);
  nn::ExportedModule module = nn::load_exported(work.net);
  if (work.clones)
    module = nn::ExportedModule(std::dynamic_pointer_cast<nn::ExportedModuleImpl>(module->clone()));
  std::vector<Tensor> inputs;
  for (std::size_t i = 0; i < module->input_names().size(); ++i)
    inputs.push_back(expected(file, concat("input.", i)));
  const Tensor target = expected(file, "target");

  Difference evaluation, losses, state;
  if (file.find("eval.before") != nullptr) {
    const torch::NoGradGuard no_gradients;
    module->eval();
    evaluation.note("eval.before", module->first_output(inputs), expected(file, "eval.before"));
    module->train();
  }
  torch::optim::SGD optimizer(parameters_of(*module), work.lr);
  std::vector<Tensor> all;
  torch::manual_seed(1);
  const Stopwatch watch;
  for (int i = 0; i < work.steps; ++i) {
    optimizer.zero_grad();
    const Tensor loss = torch::mse_loss(module->first_output(inputs), target);
    loss.backward();
    optimizer.step();
    all.push_back(loss.detach());
  }
  const double seconds = watch.seconds();
  losses.note("losses", torch::stack(all), expected(file, "losses"));
  const auto named = nn::named_state(*module);
  for (const auto& item : named)
    state.note(item.key(), item.value(), expected(file, "after." + item.key()));
  std::size_t theirs = 0;
  for (const TensorEntry& entry : file.entries())
    theirs += entry.name.starts_with("after.") ? 1 : 0;
  check(theirs == named.size(), "Python has ", theirs, " tensors, the module ", named.size());
  const double worst = std::max({evaluation.largest, losses.largest, state.largest});
  return {{"evaluation", evaluation.largest}, {"losses", losses.largest}, {"state", state.largest},
      {"of", state.of}, {"seconds", seconds}, {"equal", worst <= work.tolerance}};
}

int run(int argc, char** argv) {
  check(argc >= 6, "exported_models NET EXPECTED STEPS LR TOLERANCE [clone]");
  at::set_num_threads(1);
  const auto result = compared(
      {argv[1], argv[2], std::atoi(argv[3]), std::atof(argv[4]), std::atof(argv[5]), argc > 6});
  std::cout << result << '\n';
  return result["equal"].get<bool>() ? 0 : 1;
}

}  // namespace
}  // namespace lockstep::benchmark

int main(int argc, char** argv) {
  return lockstep::run_program("exported_models", lockstep::benchmark::run, argc, argv);
}
