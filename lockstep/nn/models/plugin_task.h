#pragma once

// The tasks of a plugin: what plugin.h has of them. Headers alone, as there.

#include <functional>
#include <map>
#include <memory>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include <c10/util/StringUtil.h>
#include <c10/util/Type.h>
#include <torch/nn/module.h>
#include <torch/types.h>

namespace lockstep::nn {

/// A batch as a task sees it: the tensors that the data name, in their order, where the net is. The
/// first dimension of each is the samples, of which there may be a part of a batch, or one.
struct TaskBatch {
  std::vector<torch::Tensor> inputs;
  std::vector<torch::Tensor> targets;  ///< empty where the data have none

  /// The first of them; std::out_of_range where there is none.
  const torch::Tensor& input() const { return inputs.at(0); }
  const torch::Tensor& target() const { return targets.at(0); }
};

/// The net of a task, whatever it is: of the plugin, one of ours, or a program of Python.
class TaskNet {
 public:
  using Tensors = std::vector<torch::Tensor>;

  TaskNet(std::shared_ptr<torch::nn::Module> module, std::function<torch::Tensor(Tensors)> forward)
      : module_(std::move(module)), forward_(std::move(forward)) {}

  /// Computes the net's forward of these tensors.
  template <typename... Inputs>
  torch::Tensor operator()(const Inputs&... inputs) const {
    return forward_({inputs...});
  }

  bool is_training() const { return module_->is_training(); }

  /// Returns the module that the plugin has made. Throws std::invalid_argument for a net of another
  /// type.
  template <typename Module>
  Module& as() const {
    auto* const own = dynamic_cast<Module*>(module_.get());
    if (own == nullptr)
      throw std::invalid_argument(c10::str(
          "it is for a net of the type ", c10::demangle_type<Module>(), "; give its --model"));
    return *own;
  }

 private:
  std::shared_ptr<torch::nn::Module> module_;
  std::function<torch::Tensor(Tensors)> forward_;
};

/// The loss of a batch and other numbers, as a task computes them.
struct TaskResult {
  torch::Tensor loss;  ///< mean over the samples: one number, with a gradient
  /// Others that evaluations measure, means over the samples too, by name. The same names in every
  /// evaluation; training needs none of them.
  std::map<std::string, torch::Tensor> numbers = {};
};

/// A function from net and batch to loss and numbers.
using TaskFunction = std::function<TaskResult(const TaskNet& net, const TaskBatch& batch)>;

/// Returns the function of a module of the plugin's own type as one of any net.
template <typename Net, typename Batch>
TaskFunction task_of_net(std::function<TaskResult(Net, Batch)> function) {
  using Module = std::remove_cv_t<std::remove_reference_t<Net>>;
  if constexpr (std::is_same_v<Module, TaskNet>) {
    return function;
  } else {
    static_assert(std::is_base_of_v<torch::nn::Module, Module>,
        "the first argument of a task must be a reference to a module, or a TaskNet");
    return [function = std::move(function)](const TaskNet& net, const TaskBatch& batch) {
      return function(net.as<Module>(), batch);
    };
  }
}

/// The settings of a turn.
struct TurnOptions {
  std::vector<std::string> modules = {};  ///< whose parameters it steps; none: that of its name
  double lr = 1;                          ///< factor of the learning rate
};

/// A part of an optimizer step: a loss, and the parameters that are stepped by it.
struct TaskTurn {
  std::string name;  ///< empty: the only one, of all parameters
  TaskFunction function;
  TurnOptions options = {};
};

/// Returns a turn of a task of several, which are taken one after the other: each sees what those
/// before it have changed, and has an optimizer of its own.
///
///     LOCKSTEP_TASK("gan", lockstep::nn::turn("critic", criticism),
///         lockstep::nn::turn("generator", generation))
template <typename Function>
TaskTurn turn(std::string name, Function function, TurnOptions options = {}) {
  if (options.modules.empty()) options.modules = {name};
  return {std::move(name), task_of_net(std::function(std::move(function))), std::move(options)};
}

/// A task that a plugin offers. Several threads call it at a time, each with a net of its own.
struct PluginTask {
  std::string name;
  std::vector<TaskTurn> turns;
};

}  // namespace lockstep::nn
