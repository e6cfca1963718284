#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "lockstep/data/pixels/pixel_scale.h"

namespace lockstep::data {

/// Returns the pixels of which PixelScale made these numbers, channels together. Numbers that no
/// pixel has, as random erasing writes them, become the nearest.
std::vector<std::uint8_t> pixels_of(
    std::span<const float> numbers, std::int64_t channels, const Normalization& normalization);

}  // namespace lockstep::data
