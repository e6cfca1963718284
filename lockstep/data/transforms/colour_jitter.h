#pragma once

#include <vector>

#include "lockstep/data/transforms/augment_step.h"
#include "lockstep/data/transforms/random_stream.h"

namespace lockstep::data {

/// Bounds the random factors of brightness, contrast and saturation: each is drawn evenly from
/// [max(0, 1 - bound), 1 + bound]; 0 leaves that property alone.
struct ColourJitter {
  double brightness = 0;
  double contrast = 0;
  double saturation = 0;

  bool any() const { return brightness > 0 || contrast > 0 || saturation > 0; }
};

/// Draws the steps that change brightness, contrast and saturation in random order, as
/// torchvision's ColorJitter does.
std::vector<AugmentStep> draw_jitter(const ColourJitter& jitter, RandomStream& stream);

}  // namespace lockstep::data
