#pragma once

namespace lockstep {

/// Says how a moving average of the weights is kept, as timm's ModelEmaV3 does.
struct EmaSettings {
  double decay = 0.9998;
  bool warmup = false;  ///< begins with a small decay, which grows up to this one
};

}  // namespace lockstep
