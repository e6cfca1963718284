#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>

#include "lockstep/formats/image/image.h"

namespace lockstep::data {

/// The complete instructions for a writer of a set.
struct SetPlan {
  std::int64_t train = 0;
  std::int64_t test = 0;
  std::int64_t classes = 0;
  std::optional<ImageSize> size;
  std::uint64_t seed = 0;
  bool gzip = false;
  std::function<void()> drawn;  ///< called after each image
};

/// The files and images that a writer wrote.
struct Written {
  std::int64_t files = 0;
  std::uint64_t bytes = 0;
};

/// Each fills an empty folder.
Written write_mnist_files(const std::filesystem::path& folder, const SetPlan& plan);
Written write_cifar10_files(const std::filesystem::path& folder, const SetPlan& plan);
Written write_cifar100_files(const std::filesystem::path& folder, const SetPlan& plan);
Written write_image_files(const std::filesystem::path& folder, const SetPlan& plan);

}  // namespace lockstep::data
