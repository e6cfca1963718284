#include "lockstep/data/pixels/pixel_scale.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "lockstep/core/error.h"

namespace lockstep::data {
namespace {

// A run of pixels whose element i becomes x * scale[i % block] + bias[i % block], rounded once.
struct PixelRun {
  const std::uint8_t* pixels;
  std::size_t elements;
  const float* scale;
  const float* bias;
  std::size_t block;
};

// Rounds to bf16, to nearest, ties to even; the value must be finite.
std::uint16_t bfloat16_bits(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  return static_cast<std::uint16_t>((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

inline void store(float value, float& out) { out = value; }
inline void store(float value, std::uint16_t& out) { out = bfloat16_bits(value); }

// The loop of all vector kernels: compiled into a function that allows more instructions, it uses
// them. Measured: the compiler's own vectors of the plain loop are as fast as hand-written ones;
// memory is the limit.
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

#if defined(__x86_64__)
// Clang ignores the whole attribute where it does not know the width's name.
#ifdef __clang__
#define LOCKSTEP_AVX512_TARGET "avx512f,avx512bw,avx512vl,fma"
#else
#define LOCKSTEP_AVX512_TARGET "avx512f,avx512bw,avx512vl,fma,prefer-vector-width=512"
#endif

template <typename Out>
[[gnu::target(LOCKSTEP_AVX512_TARGET)]] void convert_avx512(const PixelRun& run, Out* out) {
  convert(run, out);
}

template <typename Out>
[[gnu::target("avx2,fma")]] void convert_avx2(const PixelRun& run, Out* out) {
  convert(run, out);
}
#endif

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
    std::int64_t channels, const Normalization& normalization, simd::InstructionSet instructions)
    : channels_(channels), instructions_(instructions) {
  check(channels > 0, "PixelScale: there must be channels: ", channels);
  check(simd::has_instructions(instructions),
      "PixelScale: this processor lacks the kernel: ", static_cast<int>(instructions));
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

template <typename Out>
void PixelScale::convert_by(const std::vector<std::array<Out, 256>>& table,
    const std::uint8_t* pixels, Out* out, std::int64_t elements) const {
#if defined(__x86_64__)
  const PixelRun run{
      pixels, static_cast<std::size_t>(elements), scale_.data(), bias_.data(), scale_.size()};
  if (instructions_ == simd::InstructionSet::kAvx512) return convert_avx512(run, out);
  if (instructions_ == simd::InstructionSet::kAvx2) return convert_avx2(run, out);
#endif
  convert_by_table(table, pixels, out, elements);
}

void PixelScale::to_float(const std::uint8_t* pixels, float* out, std::int64_t elements) const {
  convert_by(float_table_, pixels, out, elements);
}

void PixelScale::to_bfloat16(
    const std::uint8_t* pixels, std::uint16_t* out, std::int64_t elements) const {
  convert_by(bfloat16_table_, pixels, out, elements);
}

std::vector<std::uint8_t> pixels_of(
    std::span<const float> numbers, std::int64_t channels, const Normalization& normalization) {
  const auto& [mean, std] = normalization;
  std::vector<std::uint8_t> pixels(numbers.size());
  for (std::size_t i = 0; i < numbers.size(); ++i) {
    const std::size_t channel = i % static_cast<std::size_t>(channels);
    const double scale = std.empty() ? 1 : static_cast<double>(std[channel]);
    const double shift = mean.empty() ? 0 : static_cast<double>(mean[channel]);
    const double level = 255 * (static_cast<double>(numbers[i]) * scale + shift);
    pixels[i] = static_cast<std::uint8_t>(std::lround(std::fmin(std::fmax(level, 0), 255)));
  }
  return pixels;
}

}  // namespace lockstep::data
