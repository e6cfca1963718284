#pragma once

#include <algorithm>
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

/// Returns the brightness of each pixel of three channels, by ITU-R 601-2.
Image grey(const ImageView& image);

/// Moves an image away from black: a factor of 0 gives black, 1 the image, more than it.
Image brightness(Image image, double factor);

/// Moves an image of three channels away from a grey of its mean brightness, likewise.
Image contrast(Image image, double factor);

/// Moves an image of three channels away from its greys, likewise.
Image saturation(Image image, double factor);

/// Moves an image away from itself smoothed, likewise; its border stays as it is.
Image sharpness(const ImageView& image, double factor);

/// Returns the level at `factor` on the line from one level to another, beyond 1 on its extension;
/// cut off at 0 and 255, and else towards 0 as Pillow's Image.blend does.
inline std::uint8_t blend(std::uint8_t from, std::uint8_t to, float factor) {
  const float level = static_cast<float>(from) + factor * static_cast<float>(to - from);
  return static_cast<std::uint8_t>(static_cast<int>(std::clamp(level, 0.F, 255.F)));
}

}  // namespace lockstep::data
