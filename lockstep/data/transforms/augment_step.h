#pragma once

#include "lockstep/data/transforms/ops/affine.h"

namespace lockstep::data {

/// Lists RandAugment's operations, in timm's order.
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

/// Is an operation with its argument: degrees, bits to keep, a threshold, an addition, a factor,
/// a shear, or a translation in units of the image's side; none for the first three.
struct AugmentStep {
  AugmentOp op = AugmentOp::kAutoContrast;
  double argument = 0;
};

/// Applies one operation to an image of three channels.
Image apply_step(Image image, const AugmentStep& step, const AffineOptions& options);

}  // namespace lockstep::data
