#pragma once

#include <cstdint>
#include <span>

#include "lockstep/formats/image/image.h"

namespace lockstep {

//  EXIF's orientation says where the stored image's first row and first column belong:
//
//      1: top, left     2: top, right     3: bottom, right     4: bottom, left
//      5: left, top     6: right, top     7: right, bottom     8: left, bottom
//
//  From 5 on rows become columns.

/// Returns the size of an image after it is turned.
ImageSize oriented_size(ImageSize stored, int orientation);

/// Returns the part of the stored image that is turned into this part of the turned one.
Box stored_box(const Box& oriented, ImageSize stored, int orientation);

/// Turns an image; the orientation must be 1 to 8.
Image turned(const ImageView& stored, int orientation);

/// The orientation of the camera.
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
