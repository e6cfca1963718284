#pragma once

#include <cstdint>
#include <span>

#include "lockstep/data/transforms/random_stream.h"
#include "lockstep/formats/image/image.h"

namespace lockstep::data {

/// The range of a random resized crop: its share of the image's area, and width / height.
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

/// Returns the size to which timm scales an image before it takes the centre: the shorter side to
/// the output's by `fraction`.
///
/// For square outputs this is torchvision's Resize, which cuts the longer side off, else timm's
/// ResizeKeepRatio, which rounds it.
ImageSize size_around(ImageSize image, ImageSize output, double fraction);

/// Returns the part of that size in the centre; halves are rounded to even, as torchvision does.
Box centre_box(ImageSize size, ImageSize part);

/// Swaps left and right.
Image flip(const ImageView& image);

/// Takes a part of an image that may reach beyond it; what lies there is black.
Image crop_padded(const ImageView& image, const Box& box);

/// The content of erased pixels.
enum class ErasingMode {
  kConstant,  ///< 0
  kColour,    ///< one normal number per channel and rectangle
  kPixel,     ///< a normal number per channel and pixel
};

/// Random erasing as in timm: how often, and how large the rectangles are.
struct RandomErasing {
  double probability = 0;
  ErasingMode mode = ErasingMode::kPixel;
  std::int64_t count = 1;  ///< rectangles; they share the area
  double least_share = 0.02;
  double most_share = 1. / 3.;
  double least_ratio = 0.3;  ///< height / width; at most 1 / least_ratio
};

/// Erases random rectangles of a normalised image, height x width x channels.
void erase_randomly(
    std::span<float> image, ImageSize size, const RandomErasing& erasing, RandomStream& stream);

}  // namespace lockstep::data
