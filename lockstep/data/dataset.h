#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace lockstep::data {

/// The size of an image; in memory the channels of a pixel lie together.
struct ImageShape {
  std::int64_t channels = 1;
  std::int64_t height = 0;
  std::int64_t width = 0;

  std::int64_t elements() const { return channels * height * width; }
  bool operator==(const ImageShape&) const = default;
};

/// A set of labelled images in memory as unsigned bytes.
///
/// A small value: copies share the pixels, which are never changed.
///
///     auto clothes = lockstep::data::fashion_mnist();
///     auto longer = clothes.repeated(3);   // 180,000 samples, the same 47 MB
class InMemoryImages {
 public:
  struct Parts {
    std::string name;
    ImageShape shape;
    std::int64_t classes = 0;
    std::vector<std::uint8_t> pixels;  ///< images x height x width x channels
    std::vector<std::uint8_t> labels;  ///< images, each less than `classes`
  };

  /// Takes the parts; sizes that do not fit each other are an InvalidArgument.
  explicit InMemoryImages(Parts parts);

  /// Counts the samples, repetitions included.
  std::int64_t size() const { return stored_images() * repetitions_; }

  /// Counts the images in memory.
  std::int64_t stored_images() const { return static_cast<std::int64_t>(parts_->labels.size()); }

  const std::string& name() const { return parts_->name; }
  const ImageShape& shape() const { return parts_->shape; }
  std::int64_t classes() const { return parts_->classes; }

  /// Returns the same images `times` over without copying them: sample i is sample i modulo the old
  /// size.
  InMemoryImages repeated(std::int64_t times) const;

  /// Points at the pixels of a sample, height x width x channels; the index must be in [0, size()).
  const std::uint8_t* pixels(std::int64_t index) const {
    return parts_->pixels.data() + stored_index(index) * shape().elements();
  }

  /// Returns the class of a sample; the index must be in [0, size()).
  std::int64_t label(std::int64_t index) const {
    return parts_->labels[static_cast<std::size_t>(stored_index(index))];
  }

 private:
  std::int64_t stored_index(std::int64_t index) const {
    return index < stored_images() ? index : index % stored_images();
  }

  std::shared_ptr<const Parts> parts_;
  std::int64_t repetitions_ = 1;
};

}  // namespace lockstep::data
