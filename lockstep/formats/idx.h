#pragma once

#include <cstdint>
#include <filesystem>
#include <vector>

#include "lockstep/formats/byte_stream.h"

namespace lockstep {

/// An array of bytes as an IDX file gives it; the last dimension runs fastest.
struct IdxArray {
  std::vector<std::uint32_t> shape;
  std::vector<std::uint8_t> values;
};

/// The most that a header may promise: 1 GiB, twice the largest of the usual sets (EMNIST).
inline constexpr std::uint64_t kMaximumIdxBytes = std::uint64_t{1} << 30;

/// Reads an IDX file of unsigned bytes with that many dimensions, plain or gzip by its content.
///
/// A file that holds anything else, or more or less than its header promises, is a DataError that
/// names file, offset and reason. Memory grows with the bytes that were read, never with what the
/// header claims.
///
///     auto images = lockstep::read_idx("train-images-idx3-ubyte.gz", 3);   // images.shape is
///     {60000, 28, 28}
IdxArray read_idx(const std::filesystem::path& path, int expected_dimensions,
    std::uint64_t maximum_bytes = kMaximumIdxBytes);

/// Does the same with the bytes of a source.
IdxArray parse_idx(
    ByteSource& source, int expected_dimensions, std::uint64_t maximum_bytes = kMaximumIdxBytes);

/// Grey images, row by row, and the class of each.
struct LabelledImages {
  std::uint32_t rows = 0;
  std::uint32_t columns = 0;
  std::vector<std::uint8_t> pixels;  ///< images x rows x columns
  std::vector<std::uint8_t> labels;  ///< images
};

/// Reads the two IDX files of a set such as MNIST; counts that differ and labels of `classes` or
/// above are DataErrors.
LabelledImages read_labelled_images(
    const std::filesystem::path& images, const std::filesystem::path& labels, int classes);

}  // namespace lockstep
