#pragma once

#include <cstdint>
#include <span>

#include "lockstep/formats/image/image.h"

namespace lockstep::data {

/// One look at one sample: what is drawn for it depends on nothing else.
///
/// So a run gives the same images whichever worker or rank prepares them, and however many there
/// are.
struct SampleKey {
  std::uint64_t seed = 0;
  std::int64_t epoch = 0;
  std::int64_t index = 0;
};

/// A transform of an image of three or one channels into the numbers that a model sees.
///
/// A pure function of image and key; many threads may call one at once.
class ImageTransform {
 public:
  virtual ~ImageTransform() = default;

  /// Returns the size of the output, which is the same for every input.
  virtual ImageSize output() const = 0;

  /// Returns the part of an image of that size that apply() reads; the rest need not be decoded.
  virtual Box region(ImageSize size, const SampleKey& /*key*/) const {
    return {0, 0, size.width, size.height};
  }

  /// Writes the image of that part, height x width x channels, normalised.
  ///
  /// `part` is the image's region(); `out` has output() times the part's channels numbers.
  virtual void apply(const ImageView& part, const SampleKey& key, std::span<float> out) const = 0;
};

}  // namespace lockstep::data
