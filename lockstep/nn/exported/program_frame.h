#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include <ATen/core/ivalue.h>
#include <torch/types.h>

#include "lockstep/nn/exported/code.h"
#include "lockstep/nn/exported/executable_graph.h"
#include "lockstep/nn/exported/graph_parts.h"

namespace lockstep::nn::exported {

/// The values of one run of a program, or of a part of it.
class ProgramFrame {
 public:
  /// `tensors` are those that the program holds, in the order of Code::held, as far as this run
  /// needs them.
  ProgramFrame(const Program& program, std::span<const torch::Tensor> tensors, RunContext context)
      : program_(program), tensors_(tensors), context_(context), frame_(program.graph.frame()) {}

  /// Takes the user's inputs.
  void take_inputs(const std::vector<torch::Tensor>& inputs);
  /// Takes the held tensor of an input of the graph.
  void take_held(std::size_t number);

  /// Runs the steps [begin, end).
  void run(std::size_t begin, std::size_t end) {
    program_.graph.run_steps(frame_, begin, end, context_);
  }

  /// Writes an output of the graph into the held tensor, or the input, that it is for.
  void store(std::size_t output) const;

  const c10::IValue& value(Place place) const { return frame_[static_cast<std::size_t>(place)]; }
  void set(Place place, c10::IValue value) {
    frame_[static_cast<std::size_t>(place)] = std::move(value);
  }

 private:
  const Program& program_;
  std::span<const torch::Tensor> tensors_;
  std::vector<torch::Tensor> inputs_;
  RunContext context_;
  std::vector<c10::IValue> frame_;
};

}  // namespace lockstep::nn::exported
