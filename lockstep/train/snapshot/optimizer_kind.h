#pragma once

#include <map>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <vector>

#include <torch/optim/optimizer.h>
#include <torch/types.h>

namespace lockstep {

/// The parts of the state of one kind of optimizer: the options of a group, and for each parameter
/// some tensors and mostly a count of steps.
class OptimizerStateKind {
 public:
  /// Tensors by their names in the state, such as `exp_avg`; `step` is an int64 scalar.
  using Values = std::map<std::string, torch::Tensor>;

  OptimizerStateKind() = default;
  OptimizerStateKind(const OptimizerStateKind&) = delete;
  OptimizerStateKind& operator=(const OptimizerStateKind&) = delete;
  virtual ~OptimizerStateKind() = default;

  /// Returns LibTorch's name, such as `Adam`.
  virtual std::string_view name() const = 0;

  virtual nlohmann::json options_json(const torch::optim::OptimizerOptions& options) const = 0;

  /// Makes options of what options_json() gave. Throws DataError unless all of them, and no
  /// others, are there.
  virtual std::unique_ptr<torch::optim::OptimizerOptions> read_options(
      const nlohmann::json& options) const = 0;

  /// Returns what is defined of a parameter's state; the tensors are the state's own.
  virtual Values values(const torch::optim::OptimizerParamState& state) const = 0;

  /// Makes a state that takes these tensors.
  virtual std::unique_ptr<torch::optim::OptimizerParamState> make_state(
      const Values& values) const = 0;

  /// Names all values that a state may have.
  virtual std::vector<std::string> known() const = 0;

  /// Names those that it must have with these options.
  virtual std::vector<std::string> required(
      const torch::optim::OptimizerOptions& options) const = 0;

  /// True if the optimizer makes the state when it is constructed, so no parameter lacks it.
  virtual bool is_state_made_at_once() const = 0;
};

/// Finds the kind by the optimizer's options: SGD, Adam, AdamW, Adagrad or RMSprop, plain, fused or
/// sharded. Any other is an InvalidArgument.
const OptimizerStateKind& optimizer_kind(const torch::optim::Optimizer& optimizer);

}  // namespace lockstep
