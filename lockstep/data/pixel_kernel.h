#pragma once

#include <cstddef>
#include <cstdint>

namespace lockstep::data {

/// Lists the ways to convert pixels; all give the same bits.
enum class PixelKernel { kTable, kAvx2, kAvx512 };

/// Says whether this build and this processor have a way.
bool has_pixel_kernel(PixelKernel kernel);

/// Picks the fastest way that there is.
PixelKernel fastest_pixel_kernel();

/// Describes a run of pixels whose element i becomes x * scale[i % block] + bias[i % block],
/// rounded once.
struct PixelRun {
  const std::uint8_t* pixels;
  std::size_t elements;
  const float* scale;
  const float* bias;
  std::size_t block;
};

/// Converts a run with a vector kernel that there is.
void convert_to_float(PixelKernel kernel, const PixelRun& run, float* out);

/// Does the same; the out values are the bits of bf16.
void convert_to_bfloat16(PixelKernel kernel, const PixelRun& run, std::uint16_t* out);

}  // namespace lockstep::data
