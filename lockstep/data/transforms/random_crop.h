#pragma once

#include "lockstep/data/transforms/random_stream.h"
#include "lockstep/formats/image/image.h"

namespace lockstep::data {

/// Bounds what a random resized crop takes: its share of the image's area, and width / height.
struct RandomArea {
  double least_share = 0.08;
  double most_share = 1;
  double least_ratio = 3. / 4.;
  double most_ratio = 4. / 3.;
};

/// Draws the part of an image that a random resized crop takes, as timm and torchvision do: the
/// share evenly, the ratio evenly in its logarithm, ten tries, then the centre.
Box random_area_box(ImageSize size, const RandomArea& area, RandomStream& stream);

/// Draws the place of a part of that size, each equally likely; it must fit.
Box random_box(ImageSize size, ImageSize part, RandomStream& stream);

}  // namespace lockstep::data
