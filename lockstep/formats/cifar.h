#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <vector>

#include "lockstep/formats/byte_stream.h"

namespace lockstep {

/// The two sets: 10 classes, or 100 (fine) in 20 (coarse).
enum class CifarVariant { kCifar10, kCifar100 };

inline constexpr std::int64_t kCifarSide = 32;

/// The most bytes of pixels that are read: 1 GiB, six times the real sets.
inline constexpr std::uint64_t kMaximumCifarBytes = std::uint64_t{1} << 30;

/// The images of CIFAR files, the channels of a pixel together.
struct CifarImages {
  std::vector<std::uint8_t> pixels;         ///< images x 32 x 32 x 3, RGB
  std::vector<std::uint8_t> labels;         ///< images; of CIFAR-100 the fine ones
  std::vector<std::uint8_t> coarse_labels;  ///< images; none for CIFAR-10
};

/// Reads files of the binary version one after another, plain or gzip by their content.
///
/// A file must hold whole records, 3,073 bytes in CIFAR-10 and 3,074 in CIFAR-100, at least one,
/// and labels below 10, 100 and 20. Anything else is a DataError that names file, offset and
/// reason; a file of the other variant is named as such. Memory grows with the bytes that were
/// read.
CifarImages read_cifar(std::span<const std::filesystem::path> files, CifarVariant variant,
    std::uint64_t maximum_bytes = kMaximumCifarBytes);

/// Appends the images of a source.
void parse_cifar(ByteSource& source, CifarVariant variant, CifarImages& images,
    std::uint64_t maximum_bytes = kMaximumCifarBytes);

}  // namespace lockstep
