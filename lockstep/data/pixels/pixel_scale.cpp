#include "lockstep/data/pixels/pixel_scale.h"

#include <cmath>

#include "lockstep/core/error.h"
#include "lockstep/data/pixels/pixel_kernel.h"

namespace lockstep::data {
namespace {

constexpr std::size_t kBlockPixels = 256;

void check_values(const char* what, const std::vector<float>& values, std::int64_t channels) {
  check(values.empty() || std::ssize(values) == channels, "Normalization: ", what,
      " must have a value per channel: ", values.size(), " for ", channels);
  for (const float value : values)
    check(std::isfinite(value), "Normalization: ", what, " must be finite: ", value);
}

float at_or(const std::vector<float>& values, std::int64_t channel, float otherwise) {
  return values.empty() ? otherwise : values[static_cast<std::size_t>(channel)];
}

template <typename Out>
void convert_by_table(const std::vector<std::array<Out, 256>>& table, const std::uint8_t* pixels,
    Out* out, std::int64_t elements) {
  const auto channels = std::ssize(table);
  for (std::int64_t start = 0; start < elements; start += channels) {
    for (std::int64_t channel = 0; channel < channels; ++channel) {
      out[start + channel] = table[static_cast<std::size_t>(channel)][pixels[start + channel]];
    }
  }
}

}  // namespace

PixelScale::PixelScale(
    std::int64_t channels, const Normalization& normalization, PixelKernel kernel)
    : channels_(channels), kernel_(kernel) {
  check(channels > 0, "PixelScale: there must be channels: ", channels);
  check(has_pixel_kernel(kernel),
      "PixelScale: this processor lacks the kernel: ", static_cast<int>(kernel));
  check_values("mean", normalization.mean, channels);
  check_values("std", normalization.std, channels);
  for (std::int64_t channel = 0; channel < channels; ++channel) {
    const double deviation = at_or(normalization.std, channel, 1);
    check(deviation > 0, "Normalization: std must be positive: ", deviation);
    scale_.push_back(static_cast<float>(1 / (255 * deviation)));
    bias_.push_back(static_cast<float>(-at_or(normalization.mean, channel, 0) / deviation));
    fill_tables(scale_.back(), bias_.back());
  }
  fill_block();
}

void PixelScale::fill_tables(float scale, float bias) {
  auto& floats = float_table_.emplace_back();
  auto& halves = bfloat16_table_.emplace_back();
  for (std::size_t value = 0; value < floats.size(); ++value) {
    floats[value] = std::fma(static_cast<float>(value), scale, bias);
    check(std::isfinite(floats[value]),
        "Normalization: a scaled pixel must be finite: ", floats[value]);
    halves[value] = bfloat16_bits(floats[value]);
  }
}

void PixelScale::fill_block() {
  const auto channels = static_cast<std::size_t>(channels_);
  for (auto* values : {&scale_, &bias_}) {
    values->resize(channels * kBlockPixels);
    for (std::size_t i = channels; i < values->size(); ++i) (*values)[i] = (*values)[i - channels];
  }
}

void PixelScale::to_float(const std::uint8_t* pixels, float* out, std::int64_t elements) const {
  if (kernel_ == PixelKernel::kTable) return convert_by_table(float_table_, pixels, out, elements);
  convert_to_float(kernel_,
      {pixels, static_cast<std::size_t>(elements), scale_.data(), bias_.data(), scale_.size()},
      out);
}

void PixelScale::to_bfloat16(
    const std::uint8_t* pixels, std::uint16_t* out, std::int64_t elements) const {
  if (kernel_ == PixelKernel::kTable)
    return convert_by_table(bfloat16_table_, pixels, out, elements);
  convert_to_bfloat16(kernel_,
      {pixels, static_cast<std::size_t>(elements), scale_.data(), bias_.data(), scale_.size()},
      out);
}

}  // namespace lockstep::data
