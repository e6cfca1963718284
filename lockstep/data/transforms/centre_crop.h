#pragma once

#include "lockstep/formats/image/image.h"

namespace lockstep::data {

/// Says to which size timm scales an image before it takes the centre: the shorter side to the
/// output's by `fraction`.
///
/// For square outputs this is torchvision's Resize, which cuts the longer side off, else timm's
/// ResizeKeepRatio, which rounds it.
ImageSize size_around(ImageSize image, ImageSize output, double fraction);

/// Gives the part of that size in the centre; halves are rounded to even, as torchvision does.
Box centre_box(ImageSize size, ImageSize part);

}  // namespace lockstep::data
