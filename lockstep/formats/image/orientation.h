#pragma once

#include "lockstep/formats/image/image.h"

namespace lockstep {

//  EXIF's orientation says where the stored image's first row and first column belong:
//
//      1: top, left     2: top, right     3: bottom, right     4: bottom, left
//      5: left, top     6: right, top     7: right, bottom     8: left, bottom
//
//  From 5 on rows become columns.

/// Gives the size of an image after it is turned.
ImageSize oriented_size(ImageSize stored, int orientation);

/// Gives the part of the stored image that is turned into this part of the turned one.
Box stored_box(const Box& oriented, ImageSize stored, int orientation);

/// Turns an image; the orientation must be 1 to 8.
Image turned(const ImageView& stored, int orientation);

}  // namespace lockstep
