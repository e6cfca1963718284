#pragma once

#include <cstddef>
#include <optional>

#include <ATen/core/function_schema.h>

#include "lockstep/formats/export/exported_program.h"

namespace lockstep::nn::exported {

/// Note [Training and evaluation]
/// A program has been exported in one of the two modes: arguments such as dropout's `train` are
/// constants in it. Where an archive has only one program, they follow the mode of the module in
/// which Python called the operator, so that train() and eval() do what they do in Python. In a
/// program exported in training, what is off there stays off: a batch norm that is kept in
/// evaluation. A program in which nothing is on counts as exported in evaluation; there all are
/// turned on in training.
///
/// What the exporter has left out cannot come back: a program exported in evaluation lacks the
/// probability of attention's dropout, and all that the model's own code does `if self.training`.
/// A program exported in training that draws random numbers by itself, as a stochastic depth does,
/// has no evaluation.
///
/// Two programs in an archive, `train` and `eval`, are taken as they are, each for its mode; but in
/// `train`, too, a module that is in evaluation by itself does not train, as a frozen batch norm.

/// Finds the argument by which training differs from evaluation: a truth, or the probability of a
/// dropout. There is none where both modes compute the same, as a norm without statistics does.
std::optional<std::size_t> training_argument(
    const c10::FunctionSchema& schema, const ExportedNode& node);

/// Returns whether such an argument is on anywhere in a graph.
bool is_exported_in_training(const ExportedGraph& graph);

}  // namespace lockstep::nn::exported
