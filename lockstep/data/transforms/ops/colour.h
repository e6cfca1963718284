#pragma once

#include "lockstep/formats/image/image.h"

namespace lockstep::data {

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

}  // namespace lockstep::data
