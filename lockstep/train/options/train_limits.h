#pragma once

#include <cstdint>
#include <optional>

namespace lockstep {

/// Says when training ends: at the first of these; an absent one never ends it.
struct TrainLimits {
  std::optional<std::int64_t> epochs = {};
  std::optional<std::int64_t> steps = {};
  std::optional<double> seconds = {};
};

}  // namespace lockstep
