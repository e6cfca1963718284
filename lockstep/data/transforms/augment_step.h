#pragma once

#include <vector>

#include "lockstep/data/transforms/augment_step.h"
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

}  // namespace lockstep::data
