#pragma once

#include <cstdint>
#include <span>

namespace lockstep {

/// Says how a camera was held.
struct ExifOrientation {
  int value = 1;  ///< 1 to 8: the tag's numbers; 1 is upright
  bool is_damaged = false;
};

/// Finds the orientation in EXIF data, which has the form of a TIFF file.
///
/// Only the first directory is looked at. Data that break their own form, or give an orientation
/// that does not exist, are damaged and upright: cameras and editors write such, Pillow takes them
/// as upright, and the pixels are sound.
ExifOrientation exif_orientation(std::span<const std::uint8_t> tiff);

}  // namespace lockstep
