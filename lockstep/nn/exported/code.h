#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <torch/types.h>

#include "lockstep/formats/export/exported_program.h"
#include "lockstep/nn/exported/executable_graph.h"
#include "lockstep/nn/exported/input_forms.h"

namespace lockstep::nn::exported {

/// A tensor that programs hold.
struct HeldTensor {
  enum class Kind : std::uint8_t {
    kParameter,
    kBuffer,
    kUnsavedBuffer,  ///< not persistent
    kConstant
  };
  Kind kind = Kind::kParameter;
  std::string name;
  std::size_t first = 0;   ///< the first one that is the same tensor; its own index as a rule
  bool is_kernel = false;  ///< the weight of two-dimensional convolutions
};

/// One program, ready to run.
struct Program {
  /// The use of an output of the graph.
  struct Output {
    enum class Kind : std::uint8_t { kLeftOut, kResult, kIntoHeld, kIntoInput };
    Kind kind = Kind::kLeftOut;
    std::string name = {};                           ///< of a result
    std::size_t index = 0;                           ///< of what takes the value
    std::optional<std::size_t> only_in_training_of;  ///< a module
    bool is_number = false;                          ///< of a result: it has no dimension
  };
  /// The source of an input of the graph.
  struct Input {
    enum class Kind : std::uint8_t { kHeld, kUser, kUnused };
    Kind kind = Kind::kUnused;
    std::size_t index = 0;
    /// An output goes into it: as backward may need the value before, the graph reads a copy.
    bool is_overwritten = false;
    bool is_changed = false;  ///< by an operator in place, or an output: the caller sees it
  };

  ExecutableGraph graph;
  InputForms forms;
  std::vector<Input> inputs;
  std::vector<Output> outputs;
  std::optional<ExportedTensor> first_output;
  bool needs_python_layout = false;  ///< of inputs
};

/// All that modules made of one archive share.
struct Code {
  std::string file;
  std::vector<HeldTensor> held;
  std::vector<std::string> modules;  ///< paths of those whose mode programs ask for
  std::vector<Program> programs;     ///< one, or those of training and evaluation
  std::string decomposed_norm;       ///< of GraphNeeds
  std::string lost_state;            ///< a tensor that a program changes and no file has, or empty
  std::string without_evaluation;    ///< why the program cannot be evaluated; empty if it can

  const Program& program_for(bool training) const {
    return programs[training ? 0 : programs.size() - 1];
  }
};

/// Resolves an archive's programs, and makes the tensors that they hold, in the order of `held`;
/// parameters are left empty if StoredParameters will give them their values. Throws DataError for
/// what cannot be run.
std::pair<Code, std::vector<torch::Tensor>> code_of(
    const ExportedArchive& archive, bool leaves_parameters_empty = false);

}  // namespace lockstep::nn::exported
