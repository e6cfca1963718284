#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include <ATen/core/ivalue.h>
#include <torch/nn/module.h>

#include "lockstep/formats/export/exported_program.h"

namespace lockstep::nn::exported {

/// The things that all graphs of a program have in common before they are made executable.
struct GraphSettings {
  std::string name;  ///< of file and program, for messages
  /// See Note [Training and evaluation].
  bool follows_modes = true;
  bool is_exported_in_training = false;
};

/// The needs that a program turned out to have.
struct GraphNeeds {
  std::vector<std::string> modules;  ///< paths of the modules whose mode it asks for; of all
                                     ///< programs of an archive
  std::string random_node;           ///< draws numbers in both modes; empty: none does
  std::string decomposed_norm;       ///< a batch norm that no rule for operators sees, or empty
  bool reads_strides = false;        ///< so that inputs must lie in memory as Python's did
};

/// The surroundings of a run.
struct RunContext {
  at::Device device;  ///< takes the place of all devices that the program names
  std::span<torch::nn::Module* const> modules;  ///< in the order of GraphNeeds
};

struct GraphParts;

/// A graph whose operators are resolved and whose constants are boxed, once; run() calls them one
/// after the other through LibTorch's dispatcher. So autograd, autocast, our kernels and rules for
/// operators work as for any module. Several threads may run it at a time.
class ExecutableGraph {
 public:
  /// Throws DataError that names node, argument and line of Python for an operator that LibTorch
  /// does not have, and for arguments that do not fit its schema.
  ExecutableGraph(const ExportedGraph& graph, const GraphSettings& settings, GraphNeeds& needs);
  ~ExecutableGraph();
  ExecutableGraph(ExecutableGraph&&) noexcept;

  std::size_t inputs() const;

  /// Returns whether an operator writes into the memory of an input: Note [Writing in place].
  bool changes(std::size_t input) const;

  /// Of each input, and of each output, a number that those have in common that may share memory.
  const std::vector<std::size_t>& memory_of_inputs() const;
  const std::vector<std::size_t>& memory_of_outputs() const;

  /// Returns a place for each value of a run; the first are the graph's inputs, in their order.
  std::vector<c10::IValue> frame() const;

  /// Runs the graph and returns its outputs. A c10::Error says in which node it was.
  std::vector<c10::IValue> run(std::vector<c10::IValue> frame, const RunContext& context) const;

  /// Runs some of its steps, numbers [begin, end), on a frame that has what they read.
  void run_steps(std::vector<c10::IValue>& frame, std::size_t begin, std::size_t end,
      const RunContext& context) const;

  const GraphParts& parts() const { return *parts_; }

 private:
  std::unique_ptr<const GraphParts> parts_;
};

}  // namespace lockstep::nn::exported
