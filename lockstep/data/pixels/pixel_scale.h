#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "lockstep/simd/instructions.h"

namespace lockstep::data {

/// The mean and the standard deviation of each channel, in units of the largest pixel value; empty:
/// 0 and 1.
///
///     Normalization clothes{.mean = {0.2860F}, .std = {0.3530F}};
struct Normalization {
  std::vector<float> mean = {};
  std::vector<float> std = {};
};

/// A conversion of pixels into numbers: (x / 255 - mean) / std as one fused x * scale + bias,
/// rounded once.
///
/// Every processor gives the same bits, by vector instructions or by table, within one unit in the
/// last place of the three operations done one by one. bf16 is rounded to nearest, ties to even.
class PixelScale {
 public:
  /// A mean or std that is not finite or not one per channel, or instructions that the processor
  /// lacks, are an InvalidArgument.
  explicit PixelScale(std::int64_t channels, const Normalization& normalization = {},
      simd::InstructionSet instructions = simd::instructions_in_use());

  std::int64_t channels() const { return channels_; }

  /// Converts whole pixels, channels together; `elements` is a multiple of the channels.
  void to_float(const std::uint8_t* pixels, float* out, std::int64_t elements) const;

  /// Does the same; the out values are the bits of bf16.
  void to_bfloat16(const std::uint8_t* pixels, std::uint16_t* out, std::int64_t elements) const;

 private:
  template <typename Out>
  void convert_by(const std::vector<std::array<Out, 256>>& table, const std::uint8_t* pixels,
      Out* out, std::int64_t elements) const;
  void fill_tables(float scale, float bias);
  void fill_block();

  std::int64_t channels_;
  simd::InstructionSet instructions_;
  // One value per element of a block, so that the channel need not be computed from the position.
  std::vector<float> scale_;
  std::vector<float> bias_;
  std::vector<std::array<float, 256>> float_table_;
  std::vector<std::array<std::uint16_t, 256>> bfloat16_table_;
};

/// Returns the pixels from which PixelScale made these numbers, channels together. A number that
/// belongs to no pixel, as those of random erasing, becomes the nearest pixel.
std::vector<std::uint8_t> pixels_of(
    std::span<const float> numbers, std::int64_t channels, const Normalization& normalization);

}  // namespace lockstep::data
