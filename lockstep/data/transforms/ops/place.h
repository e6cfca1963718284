#pragma once

#include "lockstep/formats/image/image.h"

namespace lockstep::data {

/// Swaps left and right.
Image flip(const ImageView& image);

/// Takes a part of an image that may reach beyond it; what lies there is black.
Image crop_padded(const ImageView& image, const Box& box);

}  // namespace lockstep::data
