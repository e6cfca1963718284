#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <ATen/core/Generator.h>
#include <torch/nn/module.h>

#include "lockstep/nn/models/model.h"
#include "lockstep/parallel/ddp/replicated_state.h"
#include "lockstep/train/options/options.h"

namespace lockstep {

/// The parameters that freeze() has left untrained.
struct Frozen {
  std::int64_t parameters = 0;
  std::int64_t elements = 0;
  /// Batch norms all of whose parameters are frozen; keep_in_evaluation() is for them.
  std::vector<std::shared_ptr<torch::nn::Module>> norms;
};

/// Stops training of the parameters whose names match a pattern: `*` stands for any letters,
/// dots too, `?` for one, `[ab]` for one of these. A tied weight is frozen by any of its names.
/// Call it before anything looks at the parameters: optimizers, DistributedDataParallel, pipelines.
///
/// Throws InvalidArgument that lists the names there are if a pattern matches none, or if nothing
/// is left to train.
///
///     const Frozen frozen = freeze(*model, {"features.*"});
Frozen freeze(torch::nn::Module& module, const std::vector<std::string>& patterns);

/// Puts frozen batch norms back into evaluation mode, after train() of the whole model: their
/// statistics belong to the weights that stay.
void keep_in_evaluation(const Frozen& frozen);

/// Gives parameters, with the model's names, their first values.
using InitFunction = std::function<void(const NamedTensors& some)>;

/// The weights that a model begins with, apart from its fresh ones.
struct StartWeights {
  Frozen frozen;
  InitFunction init;    ///< the rest of the file, where is_initialised_later(); or null
  std::string remark;   ///< what was read and frozen, for people; empty if nothing was
  std::string warning;  ///< how the file was not taken as it is; empty if it was
};

/// Loads a fresh model with the weights of `options.pretrained` and freezes what `options.freeze`
/// names.
///
/// If the file was made for another number of classes, the last linear layer keeps its fresh
/// weights, and the warning says so. Any other difference is a DataError that lists the first.
/// The same on every rank that has the same file. Throws InvalidArgument that names a parameter
/// which the optimizer cannot take (of sparse gradients), or a file of weights (of its type).
StartWeights start_with(nn::Model& model, const TrainOptions& options);

/// Returns whether the options leave the first values of parameters to init_later(): for language
/// models and exported ones whose ranks divide the parameters, and may not have the memory for all.
bool is_initialised_later(const TrainOptions& options);

/// Returns what gives them to some parameters at a time, the same as without delay: draws of
/// `generator`, or those of the exported program.
InitFunction init_later(const nn::Model& model, const at::Generator& generator);

}  // namespace lockstep
