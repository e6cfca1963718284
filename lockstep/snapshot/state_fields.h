#pragma once

#include <cstddef>

#include "lockstep/formats/json_object.h"
#include "lockstep/nn/grad_scaler_state.h"

namespace lockstep {

inline constexpr JsonLimits kStateLimits{.bytes = std::size_t{64} << 20};

/// The fields of a scaler's state, which each state.json has, or null.
template <typename Object>
void list_fields(Object& object, nn::GradScalerState& scaler) {
  object.number("scale", scaler.scale);
  object.number("growth_factor", scaler.growth_factor);
  object.number("backoff_factor", scaler.backoff_factor);
  object("growth_interval", scaler.growth_interval);
  object("growth_tracker", scaler.growth_tracker);
}

}  // namespace lockstep
