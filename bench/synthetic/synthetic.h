#pragma once

#include <cstdint>
#include <string>

#include "lockstep/formats/image/image.h"

namespace lockstep::data {

inline constexpr std::int64_t kMostSyntheticClasses = 100;

/// The name of one synthetic image.
struct SyntheticKey {
  std::uint64_t seed = 0;
  bool train = true;  ///< the images to test with are others
  std::int64_t index = 0;
};

/// The images that belong to a class of a set: Note [Synthetic classes].
struct SyntheticClass {
  std::int64_t shape = 0;
  std::int64_t first_texture = 0;  ///< the background has any of these
  std::int64_t textures = 1;

  std::string name() const;
};

/// Describes a class of a set of 1 to 100 classes.
SyntheticClass synthetic_class(std::int64_t label, std::int64_t classes);

/// Draws an image with 1 or 3 channels: the same pixels on every machine.
///
/// A convolutional net learns the classes in some epochs, a linear model does not; colours,
/// brightness, place, size and angle tell nothing, and a mirror image belongs to the same class.
Image synthetic_image(
    const SyntheticClass& kind, const SyntheticKey& key, ImageSize size, std::int64_t channels);

}  // namespace lockstep::data
