#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>

#include "lockstep/data/pixels/pixel_kernel.h"

namespace lockstep::data {

/// The ways to convert pixels; all give the same bits.
enum class PixelKernel { kTable, kAvx2, kAvx512 };

/// Returns whether this build and this processor have a way.
bool has_pixel_kernel(PixelKernel kernel);

/// Picks the fastest way that there is.
PixelKernel fastest_pixel_kernel();

/// A run of pixels whose element i becomes x * scale[i % block] + bias[i % block], rounded once.
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

/// Rounds to bf16, to nearest, ties to even; the value must be finite.
inline std::uint16_t bfloat16_bits(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  return static_cast<std::uint16_t>((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

inline void store(float value, float& out) { out = value; }
inline void store(float value, std::uint16_t& out) { out = bfloat16_bits(value); }

/// Runs the loop of every vector kernel: compiled into a function that allows more instructions, it
/// uses them.
template <typename Out>
[[gnu::always_inline]] inline void convert(const PixelRun& run, Out* __restrict out) {
  for (std::size_t start = 0; start < run.elements; start += run.block) {
    const std::size_t count = std::min(run.block, run.elements - start);
    const std::uint8_t* __restrict pixels = run.pixels + start;
    for (std::size_t i = 0; i < count; ++i) {
      store(std::fma(static_cast<float>(pixels[i]), run.scale[i], run.bias[i]), out[start + i]);
    }
  }
}

}  // namespace lockstep::data
