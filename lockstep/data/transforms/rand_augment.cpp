#include "lockstep/data/transforms/rand_augment.h"

#include <algorithm>
#include <cmath>

namespace lockstep::data {
namespace {

// Whole numbers that Python's int() gives.
double truncated(double x) { return std::trunc(x); }

double factor_argument(double level, bool increasing, double sign) {
  if (!increasing) return level * 1.8 + 0.1;
  return std::max(0.1, 1 + sign * (level * .9));
}

double draw_magnitude(const RandAugmentOptions& options, RandomStream& stream) {
  double magnitude = options.magnitude;
  if (std::isinf(options.deviation)) {
    magnitude = stream.uniform(0, magnitude);
  } else if (options.deviation > 0) {
    magnitude = stream.normal(magnitude, options.deviation);
  }
  return std::clamp(magnitude, 0., options.maximum);
}

}  // namespace

double augment_argument(AugmentOp op, double magnitude, bool increasing, bool negated) {
  const double level = magnitude / 10;
  const double sign = negated ? -1 : 1;
  switch (op) {
    case AugmentOp::kRotate:
      return sign * (level * 30);
    case AugmentOp::kPosterize:
      return increasing ? 4 - truncated(level * 4) : truncated(level * 4);
    case AugmentOp::kSolarize: {
      const double threshold = std::min(256., truncated(level * 256));
      return increasing ? 256 - threshold : threshold;
    }
    case AugmentOp::kSolarizeAdd:
      return std::min(128., truncated(level * 110));
    case AugmentOp::kSaturation:
    case AugmentOp::kContrast:
    case AugmentOp::kBrightness:
    case AugmentOp::kSharpness:
      return factor_argument(level, increasing, sign);
    case AugmentOp::kShearX:
    case AugmentOp::kShearY:
      return sign * (level * 0.3);
    case AugmentOp::kTranslateX:
    case AugmentOp::kTranslateY:
      return sign * (level * 0.45);
    default:
      return 0;
  }
}

std::vector<AugmentStep> draw_steps(const RandAugmentOptions& options, RandomStream& stream) {
  std::vector<AugmentStep> steps;
  for (std::int64_t layer = 0; layer < options.layers; ++layer) {
    const auto op = static_cast<AugmentOp>(stream.integer(0, kAugmentOps - 1));
    if (stream.uniform() >= options.probability) continue;
    const double magnitude = draw_magnitude(options, stream);
    const bool negated = stream.uniform() < 0.5;
    steps.push_back({op, augment_argument(op, magnitude, options.increasing, negated)});
  }
  return steps;
}

}  // namespace lockstep::data
