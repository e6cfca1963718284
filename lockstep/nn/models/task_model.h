#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <torch/types.h>

#include "lockstep/nn/models/around_net.h"
#include "lockstep/nn/models/model.h"
#include "lockstep/nn/models/plugin_task.h"

namespace lockstep::nn {

/// A net with a plugin's task around it: it takes the inputs and targets of a batch and returns
/// loss and numbers, as a program does. Its parameters, buffers and sub-modules are the net's,
/// under their names.
///
/// With gradients it is of one turn of the task, else of all: the loss is then their sum, and
/// NAME_loss is a number too. The first call says which numbers there are; clones know it, and
/// which turn it is.
class TaskModelImpl final : public AroundNet<ModelImpl, Model> {
 public:
  /// Takes batches whose first tensors, so many of them, are inputs.
  TaskModelImpl(PluginTask task, Model net, std::size_t inputs);

  torch::Tensor forward(torch::Tensor images) override { return forward_all({images}); }

  /// Returns those of the net, without the task.
  Layers layers() const override { return net()->layers(); }

  /// Returns nothing before the first call.
  std::optional<std::vector<std::string>> numbers() const override { return shared_->numbers; }

  const std::vector<TaskTurn>& turns() const { return task_.turns; }

  /// Begins a turn, of which forward in training computes the loss from now on.
  void begin_turn(std::size_t turn) { shared_->turn = turn; }

 private:
  /// The state that clones share.
  struct Shared {
    std::optional<std::vector<std::string>> numbers = {};
    std::size_t turn = 0;
  };

  /// Throws InvalidArgument with the plugin's words if its function throws or returns no loss.
  torch::Tensor forward_all(std::vector<torch::Tensor> tensors) override;
  std::shared_ptr<torch::nn::Module> around(Model net) const override;
  TaskResult result_of(const TaskTurn& turn, const TaskBatch& batch) const;
  TaskResult result_of_all(const TaskBatch& batch) const;
  void check_number(const std::string& name, const torch::Tensor& value) const;
  void check_names(const TaskResult& result) const;

  PluginTask task_;
  std::size_t inputs_;
  TaskNet seen_;  // what the task is given of the net
  std::shared_ptr<Shared> shared_ = std::make_shared<Shared>();
};

/// Returns a net with a task of the plugins that were loaded around it. Throws InvalidArgument that
/// lists the tasks there are for an unknown one.
Model with_task(const std::string& task, const Model& net, std::size_t inputs);

}  // namespace lockstep::nn
