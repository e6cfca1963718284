#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "lockstep/data/transforms/augment_step.h"
#include "lockstep/data/transforms/random_stream.h"

namespace lockstep::data {

/// RandAugment as timm describes it: magnitudes are on a scale of 10.
struct RandAugmentOptions {
  double magnitude = 10;
  /// Of the normal distribution that magnitudes are drawn from; infinite: they are drawn evenly
  /// from 0 to `magnitude`.
  double deviation = 0;
  double maximum = 10;       ///< magnitudes are cut off here and at 0
  double probability = 0.5;  ///< with which each chosen operation is applied
  std::int64_t layers = 2;   ///< operations chosen per image, with replacement
  bool increasing = false;   ///< a larger magnitude always changes an image more

  bool operator==(const RandAugmentOptions&) const = default;
};

/// Reads what timm's auto_augment takes: "rand", then sections after dashes in any order: m
/// magnitude, n layers, p probability, mstd deviation (over 100: infinite), mmax maximum, inc 0 or
/// 1.
///
/// What timm overlooks or this library lacks (sections without a number, sets of operations by t)
/// is an InvalidArgument.
///
///     const auto options = parse_rand_augment("rand-m9-mstd0.5-inc1");
RandAugmentOptions parse_rand_augment(std::string_view config);

/// Returns an operation's argument for a magnitude; `negated` turns the direction of those that
/// have two round.
double augment_argument(AugmentOp op, double magnitude, bool increasing, bool negated);

/// Draws what happens to one image; chosen operations that are not applied are left out.
std::vector<AugmentStep> draw_steps(const RandAugmentOptions& options, RandomStream& stream);

}  // namespace lockstep::data
