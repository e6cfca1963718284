#pragma once

#include <cstdint>
#include <functional>

#include <torch/types.h>

#include "lockstep/comm/process_group.h"
#include "lockstep/data/loader.h"

namespace lockstep {

/// Is how well a model does on a data set.
struct Evaluation {
  double loss = 0;
  double accuracy = 0;
  std::int64_t samples = 0;  ///< of all ranks together
};

/// Gives the scores [samples, classes] of images.
using Forward = std::function<torch::Tensor(const torch::Tensor&)>;

/// Counts over the shares of all ranks; with shares that repeat nothing the result is exact. A
/// collective.
Evaluation evaluate(const Forward& forward, const Loader& share, const ProcessGroup& world);

}  // namespace lockstep
