#include "lockstep/data/transforms/augment_step.h"

#include <algorithm>
#include <array>
#include <utility>

#include "lockstep/data/transforms/ops/colour.h"
#include "lockstep/data/transforms/ops/levels.h"

namespace lockstep::data {
namespace {

AffineMap affine_map(const AugmentStep& step, ImageSize size) {
  switch (step.op) {
    case AugmentOp::kShearX:
      return {.xy = step.argument};
    case AugmentOp::kShearY:
      return {.yx = step.argument};
    case AugmentOp::kTranslateX:
      return {.x0 = step.argument * static_cast<double>(size.width)};
    case AugmentOp::kTranslateY:
      return {.y0 = step.argument * static_cast<double>(size.height)};
    default:
      return rotation(size, step.argument);
  }
}

struct Property {
  AugmentOp op;
  double bound;
};

void shuffle(std::array<Property, 3>& properties, RandomStream& stream) {
  for (std::size_t i = properties.size() - 1; i > 0; --i) {
    const auto other = stream.integer(0, static_cast<std::int64_t>(i));
    std::swap(properties[i], properties[static_cast<std::size_t>(other)]);
  }
}

}  // namespace

Image apply_step(Image image, const AugmentStep& step, const AffineOptions& options) {
  switch (step.op) {
    case AugmentOp::kAutoContrast:
      return auto_contrast(std::move(image));
    case AugmentOp::kEqualize:
      return equalize(std::move(image));
    case AugmentOp::kInvert:
      return invert(std::move(image));
    case AugmentOp::kPosterize:
      return posterize(std::move(image), static_cast<int>(step.argument));
    case AugmentOp::kSolarize:
      return solarize(std::move(image), static_cast<int>(step.argument));
    case AugmentOp::kSolarizeAdd:
      return solarize_add(std::move(image), static_cast<int>(step.argument));
    case AugmentOp::kSaturation:
      return saturation(std::move(image), step.argument);
    case AugmentOp::kContrast:
      return contrast(std::move(image), step.argument);
    case AugmentOp::kBrightness:
      return brightness(std::move(image), step.argument);
    case AugmentOp::kSharpness:
      return sharpness(image.view(), step.argument);
    default:
      return transform_affine(image.view(), affine_map(step, image.size), options);
  }
}

std::vector<AugmentStep> draw_jitter(const ColourJitter& jitter, RandomStream& stream) {
  std::array<Property, 3> properties{{{AugmentOp::kBrightness, jitter.brightness},
      {AugmentOp::kContrast, jitter.contrast}, {AugmentOp::kSaturation, jitter.saturation}}};
  shuffle(properties, stream);
  std::vector<AugmentStep> steps;
  for (const auto& [op, bound] : properties) {
    if (bound > 0) steps.push_back({op, stream.uniform(std::max(0., 1 - bound), 1 + bound)});
  }
  return steps;
}

}  // namespace lockstep::data
