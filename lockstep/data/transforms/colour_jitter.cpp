#include "lockstep/data/transforms/colour_jitter.h"

#include <algorithm>
#include <array>
#include <utility>

namespace lockstep::data {
namespace {

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

std::vector<AugmentStep> draw_jitter(const ColourJitter& jitter, RandomStream& stream) {
  std::array<Property, 3> properties{
      {{AugmentOp::kBrightness, jitter.brightness},
       {AugmentOp::kContrast, jitter.contrast},
       {AugmentOp::kSaturation, jitter.saturation}}};
  shuffle(properties, stream);
  std::vector<AugmentStep> steps;
  for (const auto& [op, bound] : properties) {
    if (bound > 0) steps.push_back({op, stream.uniform(std::max(0., 1 - bound), 1 + bound)});
  }
  return steps;
}

}  // namespace lockstep::data
