#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <torch/nn/module.h>

namespace lockstep {

/// Is what freeze() has left untrained.
struct Frozen {
  std::int64_t parameters = 0;
  std::int64_t elements = 0;
  /// Batch norms all of whose parameters are frozen; keep_in_evaluation() is for them.
  std::vector<std::shared_ptr<torch::nn::Module>> norms;
};

/// Takes the gradient from the parameters whose names match a pattern: `*` stands for any letters,
/// dots too, `?` for one, `[ab]` for one of these. Call it before anything looks at the parameters:
/// optimizers, DistributedDataParallel, pipelines.
///
/// Throws InvalidArgument that lists the names there are if a pattern matches none, or if nothing
/// is left to train.
///
///     const Frozen frozen = freeze(*model, {"features.*"});
Frozen freeze(torch::nn::Module& module, const std::vector<std::string>& patterns);

/// Puts frozen batch norms back into evaluation mode, after train() of the whole model: their
/// statistics belong to the weights that stay.
void keep_in_evaluation(const Frozen& frozen);

}  // namespace lockstep
