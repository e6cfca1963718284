#pragma once

#include <array>
#include <cstdint>

#include "lockstep/formats/image/image.h"

namespace lockstep::data {

/// For each level of a channel the one that takes its place.
using LevelTable = std::array<std::uint8_t, 256>;

/// Replaces the levels of all channels.
Image replace_levels(Image image, const LevelTable& table);

/// Turns every level x into 255 - x.
Image invert(Image image);

/// Keeps the highest bits of every level; 8 or more keep all, 0 makes black.
Image posterize(Image image, int bits);

/// Inverts the levels from a threshold on.
Image solarize(Image image, int threshold);

/// Adds to the levels under 128, up to 255.
Image solarize_add(Image image, int addition);

/// Stretches each channel's levels so that the lowest becomes 0 and the highest 255.
Image auto_contrast(Image image);

/// Spreads each channel's levels evenly by how often they occur.
Image equalize(Image image);

}  // namespace lockstep::data
