#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

namespace lockstep {

/// The class of a sample that must not be counted: cross entropy leaves it out by default.
inline constexpr std::int64_t kIgnoredTarget = -100;

namespace data {

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

/// The folder of Debian's package dataset-fashion-mnist.
inline constexpr const char* kFashionMnistDirectory = "/usr/share/datasets/fashion-mnist";

/// Reads Fashion-MNIST: 60,000 images to train with or 10,000 to test with, 28 x 28, 10 classes.
///
/// Looks for `train-images-idx3-ubyte` and its siblings, with or without `.gz`. Missing or wrong
/// files are a DataError that says what to do.
InMemoryImages fashion_mnist(
    const std::filesystem::path& directory = kFashionMnistDirectory, bool train = true);

/// Reads MNIST, whose files have the same names and form.
InMemoryImages mnist(const std::filesystem::path& directory, bool train = true);

/// Reads CIFAR-10's binary version: 50,000 images to train with or 10,000 to test with, 32 x 32
/// x 3.
///
/// The folder is the one that holds `data_batch_1.bin` to `_5.bin` and `test_batch.bin`, or the one
/// in which the archive was unpacked and that holds `cifar-10-batches-bin`. Missing or wrong files,
/// and the folder of another version or set, are a DataError that says what to do.
InMemoryImages cifar10(const std::filesystem::path& directory, bool train = true);

/// Reads CIFAR-100's, `train.bin` and `test.bin`, perhaps in `cifar-100-binary`; the labels are the
/// 100 fine ones.
InMemoryImages cifar100(const std::filesystem::path& directory, bool train = true);

/// Options of mock(); the same options make the same images everywhere.
struct MockOptions {
  std::int64_t size = 256;
  ImageShape shape = {.channels = 1, .height = 28, .width = 28};
  std::int64_t classes = 10;
  std::uint64_t seed = 0;
};

/// Makes one batch of random images and labels; `mock(...).repeated(times)` makes an epoch of it.
InMemoryImages mock(const MockOptions& options = {});

/// Returns the files of a part of CIFAR-10, or CIFAR-100, that are below the folder as above.
std::vector<std::filesystem::path> cifar_files(
    const std::filesystem::path& directory, bool train, bool hundred);

/// Returns the names of a set's classes, by number: those of the folders of `images`, of CIFAR's
/// files of names, of Fashion-MNIST's authors, MNIST's digits. Empty where a set has none, or not
/// its files of names.
std::vector<std::string> class_names(
    const std::string& set, const std::filesystem::path& directory);

}  // namespace data
}  // namespace lockstep
