#pragma once

#include <cstdint>

namespace lockstep::nn {

/// The state from which a GradScaler continues as before: PyTorch's state_dict().
struct GradScalerState {
  double scale = 0;
  double growth_factor = 0;
  double backoff_factor = 0;
  std::int64_t growth_interval = 0;
  std::int64_t growth_tracker = 0;  ///< steps without overflow since the scale changed

  friend bool operator==(const GradScalerState&, const GradScalerState&) = default;
};

}  // namespace lockstep::nn
