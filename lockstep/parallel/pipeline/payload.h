#pragma once

#include <vector>

#include <torch/types.h>

#include "lockstep/parallel/pipeline/stage_value.h"

namespace lockstep {

/// Is what one stage hands to the next for one micro-batch, or its gradient on the way back.
struct Payload {
  ValueForm form = ValueForm::kTensor;
  std::vector<torch::Tensor> values;  ///< the value's tensors, then the skips that cross
  std::size_t skips = 0;              ///< how many of them are skips
};

/// Says which way a payload goes.
enum class Direction : std::int64_t { kForward, kBackward };

/// Names a payload: the stage that shall take it, and the micro-batch.
struct Address {
  Direction direction = Direction::kForward;
  int stage = 0;
  int micro_batch = 0;
  friend auto operator<=>(const Address&, const Address&) = default;
};

}  // namespace lockstep
