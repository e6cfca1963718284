#pragma once

#include "lockstep/formats/image/image.h"

namespace lockstep::data {

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

/// Moves an image away from black: a factor of 0 gives black, 1 the image, more than it.
Image brightness(Image image, double factor);

/// Moves an image of three channels away from a grey of its mean brightness, likewise.
Image contrast(Image image, double factor);

/// Moves an image of three channels away from its greys, likewise.
Image saturation(Image image, double factor);

/// Moves an image away from itself smoothed, likewise; its border stays as it is.
Image sharpness(const ImageView& image, double factor);

}  // namespace lockstep::data
