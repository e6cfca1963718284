#pragma once

#include <filesystem>
#include <vector>

#include "lockstep/data/dataset.h"

namespace lockstep::data {

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

}  // namespace lockstep::data
