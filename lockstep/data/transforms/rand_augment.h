#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "lockstep/data/transforms/ops/affine.h"
#include "lockstep/data/transforms/random_stream.h"

namespace lockstep::data {

/// RandAugment's operations, in timm's order.
enum class AugmentOp {
  kAutoContrast,
  kEqualize,
  kInvert,
  kRotate,
  kPosterize,
  kSolarize,
  kSolarizeAdd,
  kSaturation,
  kContrast,
  kBrightness,
  kSharpness,
  kShearX,
  kShearY,
  kTranslateX,
  kTranslateY,
};

inline constexpr std::int64_t kAugmentOps = 15;

/// An operation with its argument: degrees, bits to keep, a threshold, an addition, a factor, a
/// shear, or a translation in units of the image's side; none for the first three.
struct AugmentStep {
  AugmentOp op = AugmentOp::kAutoContrast;
  double argument = 0;
};

/// Applies one operation to an image of three channels.
Image apply_step(Image image, const AugmentStep& step, const AffineOptions& options);

/// The range of the random factors of brightness, contrast and saturation: each is drawn evenly
/// from [max(0, 1 - bound), 1 + bound]; 0 leaves that property alone.
struct ColourJitter {
  double brightness = 0;
  double contrast = 0;
  double saturation = 0;

  bool any() const { return brightness > 0 || contrast > 0 || saturation > 0; }
};

/// Draws the steps that change brightness, contrast and saturation in random order, as
/// torchvision's ColorJitter does.
std::vector<AugmentStep> draw_jitter(const ColourJitter& jitter, RandomStream& stream);

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
