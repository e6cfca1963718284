#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/formats/image/image.h"

namespace lockstep::data {

/// Options of write_synthetic_set(); what is not given is as in the real set, or usual.
struct SyntheticOptions {
  std::optional<std::int64_t> train = {};    ///< images to train with
  std::optional<std::int64_t> test = {};     ///< images to test with; in `images`, the folder val
  std::optional<std::int64_t> classes = {};  ///< of `images` alone; the others have theirs
  std::optional<ImageSize> size = {};        ///< of `images` alone; else they differ
  std::uint64_t seed = 0;
  bool gzip = false;  ///< of `mnist` and `fashion-mnist` alone
  std::function<void(std::int64_t done, std::int64_t of)> progress =
      {};  ///< called after each image
};

/// The files and images that were written.
struct SyntheticSummary {
  std::int64_t train = 0;
  std::int64_t test = 0;
  std::int64_t classes = 0;
  std::int64_t files = 0;
  std::uint64_t bytes = 0;
};

/// Writes a synthetic set in the very format of the real one, so that whatever reads that reads it.
///
/// `mnist`, `fashion-mnist`: four IDX files. `cifar10`, `cifar100`: the binary version's files in
/// the folder of its archive. `images`: train/CLASS and val/CLASS with JPEG files, every eighth a
/// PNG. The folder appears whole or not at all; one that is there and not empty, a name or a count
/// that cannot be are an InvalidArgument.
SyntheticSummary write_synthetic_set(const std::string& name,
    const std::filesystem::path& directory, const SyntheticOptions& options = {});

}  // namespace lockstep::data
