#include "lockstep/data/transforms/ops/affine.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <numbers>

#include "lockstep/core/error.h"
#include "lockstep/simd/instructions.h"

namespace lockstep::data {
namespace {

constexpr std::int64_t kPixelFloats = 4;

// As Python's round(x, 15), which Pillow applies to sines: by way of the decimal number.
double rounded_to_15_places(double x) {
  std::array<char, 32> digits{};
  const auto written =
      std::to_chars(digits.data(), digits.data() + digits.size(), x, std::chars_format::fixed, 15);
  double rounded = 0;
  std::from_chars(digits.data(), written.ptr, rounded);
  return rounded;
}

void unpack_row(const ImageView& image, std::int64_t y, float* pixels) {
  const std::uint8_t* from = image.row(y);
  for (std::int64_t x = 0; x < image.size.width; ++x, from += 3, pixels += kPixelFloats) {
    for (int channel = 0; channel < 3; ++channel) pixels[channel] = from[channel];
    pixels[3] = 0;
  }
}

void repeat_ends(float* first, std::int64_t width) {
  float* last = first + (width - 1) * kPixelFloats;
  for (std::int64_t i = 1; i <= kAffineBorder; ++i) {
    std::copy_n(first, kPixelFloats, first - i * kPixelFloats);
    std::copy_n(last, kPixelFloats, last + i * kPixelFloats);
  }
}

AffineSource unpacked(const ImageView& image, std::vector<float>& memory) {
  const auto [width, height] = image.size;
  const std::int64_t stride = (width + 2 * kAffineBorder) * kPixelFloats;
  const auto needed = static_cast<std::size_t>((height + 2 * kAffineBorder) * stride);
  if (memory.size() < needed) memory.resize(needed);
  float* origin = memory.data() + kAffineBorder * (stride + kPixelFloats);
  for (std::int64_t y = -kAffineBorder; y < height + kAffineBorder; ++y) {
    float* row = origin + y * stride;
    unpack_row(image, std::clamp<std::int64_t>(y, 0, height - 1), row);
    repeat_ends(row, width);
  }
  return {origin, stride, width, height};
}

Image filled(ImageSize size, const std::array<std::uint8_t, 3>& colour) {
  Image image = Image::of_size(size);
  for (std::size_t i = 0; i < image.pixels.size(); i += 3) {
    std::copy_n(colour.begin(), 3, image.pixels.begin() + static_cast<std::ptrdiff_t>(i));
  }
  return image;
}

}  // namespace

AffineMap rotation(ImageSize size, double degrees) {
  const double turned = std::fmod(degrees, 360);
  const double angle = -(turned < 0 ? turned + 360 : turned) * (std::numbers::pi / 180);
  const double cosine = rounded_to_15_places(std::cos(angle));
  const double sine = rounded_to_15_places(std::sin(angle));
  const double x = static_cast<double>(size.width) / 2;
  const double y = static_cast<double>(size.height) / 2;
  return {cosine, sine, cosine * -x + sine * -y + x, -sine, cosine, -sine * -x + cosine * -y + y};
}

Image transform_affine_by(const AffineKernel& kernel, const ImageView& image, const AffineMap& map,
    const AffineOptions& options) {
  check(image.channels == 3, "transform_affine: the image must have 3 channels: ", image.channels);
  static thread_local std::vector<float> memory;
  const AffineSource source = unpacked(image, memory);
  const auto map_row =
      options.interpolation == Interpolation::kBicubic ? kernel.bicubic_row : kernel.bilinear_row;
  Image out = filled(image.size, options.fill);
  for (std::int64_t y = 0; y < image.size.height; ++y) map_row(source, map, y, out.row(y));
  return out;
}

std::span<const AffineKernel* const> affine_kernels() {
  [[maybe_unused]] const auto in_use = simd::instructions_in_use();  // refuses a wrong name
#if defined(__x86_64__)
  static const AffineKernel* const kKernels[] = {
      &plain_affine_kernel(), &avx2_affine_kernel(), &avx512_affine_kernel()};
  return simd::usable(kKernels);
#else
  static const AffineKernel* const kPlain = &plain_affine_kernel();
  return {&kPlain, 1};
#endif
}

Image transform_affine(const ImageView& image, const AffineMap& map, const AffineOptions& options) {
  static const AffineKernel& kernel = *affine_kernels().back();
  return transform_affine_by(kernel, image, map, options);
}

}  // namespace lockstep::data
