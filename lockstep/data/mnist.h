#pragma once

#include <filesystem>

#include "lockstep/data/dataset.h"

namespace lockstep::data {

/// Is where Debian's package dataset-fashion-mnist puts its files.
inline constexpr const char* kFashionMnistDirectory = "/usr/share/datasets/fashion-mnist";

/// Reads Fashion-MNIST: 60,000 images to train with or 10,000 to test with, 28 x 28, 10 classes.
///
/// Looks for `train-images-idx3-ubyte` and its siblings, with or without `.gz`. Missing or wrong
/// files are a DataError that says what to do.
InMemoryImages fashion_mnist(
    const std::filesystem::path& directory = kFashionMnistDirectory, bool train = true);

/// Reads MNIST, whose files have the same names and form.
InMemoryImages mnist(const std::filesystem::path& directory, bool train = true);

}  // namespace lockstep::data
