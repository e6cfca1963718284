#pragma once

#include <string>

#include "lockstep/plan/profile/model_profile.h"

namespace lockstep::plan {

/// A step that was measured as a whole.
struct WholeStep {
  std::string model;
  double batch = 1;
  double seconds = 0;          ///< of a step with this batch on one place
  double parameter_bytes = 0;  ///< spread evenly over the layers
};

/// Makes a profile of equal layers, a third of whose time is forward. It tells how much of an
/// exchange hides behind backward, and nothing about cuts or other batches: time is taken to grow
/// with the samples. Throws InvalidArgument for a step that takes no time.
ModelProfile coarse_profile(const WholeStep& step);

}  // namespace lockstep::plan
