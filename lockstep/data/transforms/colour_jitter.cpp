#include "lockstep/data/transforms/colour_jitter.h"

#include <algorithm>
#include <array>
#include <utility>

#include "lockstep/data/transforms/ops/colour.h"

namespace lockstep::data {
namespace {

enum class Property { kBrightness, kContrast, kSaturation };

double bound_of(Property property, const ColourJitter& jitter) {
  if (property == Property::kBrightness) return jitter.brightness;
  return property == Property::kContrast ? jitter.contrast : jitter.saturation;
}

Image changed(Image image, Property property, double factor) {
  if (property == Property::kBrightness) return brightness(std::move(image), factor);
  if (property == Property::kContrast) return contrast(std::move(image), factor);
  return saturation(std::move(image), factor);
}

std::array<Property, 3> random_order(RandomStream& stream) {
  std::array order{Property::kBrightness, Property::kContrast, Property::kSaturation};
  for (std::size_t i = order.size() - 1; i > 0; --i) {
    const auto other = stream.integer(0, static_cast<std::int64_t>(i));
    std::swap(order[i], order[static_cast<std::size_t>(other)]);
  }
  return order;
}

}  // namespace

Image jitter_colours(Image image, const ColourJitter& jitter, RandomStream& stream) {
  for (const Property property : random_order(stream)) {
    const double bound = bound_of(property, jitter);
    if (bound == 0) continue;
    const double factor = stream.uniform(std::max(0., 1 - bound), 1 + bound);
    image = changed(std::move(image), property, factor);
  }
  return image;
}

}  // namespace lockstep::data
