#pragma once

#include <cstdint>
#include <filesystem>
#include <vector>

#include "lockstep/formats/byte_source.h"

namespace lockstep {

/// Holds an array of bytes as an IDX file gives it; the last dimension runs fastest.
struct IdxArray {
  std::vector<std::uint32_t> shape;
  std::vector<std::uint8_t> values;
};

/// Bounds what a header may promise: 1 GiB, twice the largest of the usual sets (EMNIST).
inline constexpr std::uint64_t kMaximumIdxBytes = std::uint64_t{1} << 30;

/// Reads an IDX file of unsigned bytes with that many dimensions, plain or gzip by its content.
///
/// A file that holds anything else, or more or less than its header promises, is a DataError that
/// names file, offset and reason. Memory grows with the bytes that were read, never with what the
/// header claims.
///
///     auto images = lockstep::read_idx("train-images-idx3-ubyte.gz", 3);   // images.shape is
///     {60000, 28, 28}
IdxArray read_idx(
    const std::filesystem::path& path, int expected_dimensions,
    std::uint64_t maximum_bytes = kMaximumIdxBytes);

/// Does the same with the bytes of a source.
IdxArray parse_idx(
    ByteSource& source, int expected_dimensions, std::uint64_t maximum_bytes = kMaximumIdxBytes);

}  // namespace lockstep
