#pragma once

#include <cstdint>
#include <vector>

#include <ATen/ops/randint.h>
#include <ATen/ops/randn.h>
#include <torch/utils.h>

#include "lockstep/data/batch.h"

namespace lockstep::testing {

/// Makes a batch of these sizes with five classes: the same one each time.
inline Batch random_batch(const std::vector<std::int64_t>& sizes) {
  torch::manual_seed(3);
  return {at::randn(sizes), at::randint(5, {sizes.front()}, torch::kLong)};
}

}  // namespace lockstep::testing
