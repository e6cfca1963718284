#pragma once

#include <string>

#include "lockstep/nn/models/model.h"
#include "lockstep/train/optim/freeze.h"
#include "lockstep/train/options/options.h"

namespace lockstep {

/// Is what a model begins with besides its fresh weights.
struct StartWeights {
  Frozen frozen;
  std::string remark;   ///< what was read and frozen, for people; empty if nothing was
  std::string warning;  ///< how the file was not taken as it is; empty if it was
};

/// Gives a fresh model the weights of `options.pretrained` and freezes what `options.freeze` names.
///
/// If the file was made for another number of classes, the last linear layer keeps its fresh
/// weights, which the warning tells. Any other difference is a DataError that lists all of them.
/// The same on every rank that has the same file.
StartWeights start_with(nn::Model& model, const TrainOptions& options);

}  // namespace lockstep
