#pragma once

namespace lockstep {

/// The settings of a moving average of the weights, as timm's ModelEmaV3 has them.
struct EmaSettings {
  double decay = 0.9998;
  bool warmup = false;  ///< begins with a small decay, which grows up to this one
};

}  // namespace lockstep
