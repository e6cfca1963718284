#pragma once

#include <cstdint>
#include <span>

#include "lockstep/data/transforms/random_stream.h"
#include "lockstep/formats/image/image.h"

namespace lockstep::data {

/// The content of erased pixels.
enum class ErasingMode {
  kConstant,  ///< 0
  kColour,    ///< one normal number per channel and rectangle
  kPixel,     ///< a normal number per channel and pixel
};

/// Random erasing as in timm: how often, and how large the rectangles are.
struct RandomErasing {
  double probability = 0;
  ErasingMode mode = ErasingMode::kPixel;
  std::int64_t count = 1;  ///< rectangles; they share the area
  double least_share = 0.02;
  double most_share = 1. / 3.;
  double least_ratio = 0.3;  ///< height / width; at most 1 / least_ratio
};

/// Erases random rectangles of a normalised image, height x width x channels.
void erase_randomly(
    std::span<float> image, ImageSize size, const RandomErasing& erasing, RandomStream& stream);

}  // namespace lockstep::data
