#pragma once

#include <vector>

#include "lockstep/data/transforms/augment_step.h"
#include "lockstep/data/transforms/rand_augment_options.h"
#include "lockstep/data/transforms/random_stream.h"

namespace lockstep::data {

/// Gives an operation's argument for a magnitude; `negated` turns the direction of those that have
/// two round.
double augment_argument(AugmentOp op, double magnitude, bool increasing, bool negated);

/// Draws what happens to one image; chosen operations that are not applied are left out.
std::vector<AugmentStep> draw_steps(const RandAugmentOptions& options, RandomStream& stream);

}  // namespace lockstep::data
