#pragma once

#include <cstdint>
#include <filesystem>
#include <vector>

namespace lockstep {

/// Holds grey images, row by row, and the class of each.
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
