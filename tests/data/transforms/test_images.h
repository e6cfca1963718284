#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <span>
#include <stdexcept>
#include <string>

#include "lockstep/formats/image/image.h"

namespace lockstep::testing {

/// What images can show, in the order of tests/conformance/transforms.py.
inline constexpr std::array<const char*, 6> kContents{
    "noise", "ramps", "flat", "dull", "checks", "photo"};

inline std::int64_t noise(std::int64_t element) {
  std::uint64_t x = static_cast<std::uint64_t>(element) + 0x9E3779B97F4A7C15;
  x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9;
  x = (x ^ x >> 27) * 0x94D049BB133111EB;
  return static_cast<std::int64_t>((x ^ x >> 31) >> 56);
}

// Goes up to 255 and down again.
inline std::int64_t folded(std::int64_t x) { return x % 511 > 255 ? 510 - x % 511 : x % 511; }

inline std::int64_t level(const std::string& content, std::int64_t element, std::int64_t x,
    std::int64_t y, std::int64_t channel) {
  if (content == "noise") return noise(element);
  if (content == "ramps") return folded(7 * x + 3 * y + 85 * channel);
  if (content == "flat") return 90 + 60 * channel;
  if (content == "dull") return 80 + 20 * channel + noise(element) % 40;
  if (content == "checks") return 255 * ((x / 3 + y / 2 + channel) % 2);
  if (content == "photo") {
    const std::int64_t slope = folded(2 * x + y * (channel + 1) / 2 + 40 * channel);
    return std::min<std::int64_t>(255, slope * 3 / 4 + noise(element) % 16);
  }
  throw std::invalid_argument("no such content: " + content);
}

/// Makes the image that the script makes by the same formula.
inline Image image_of(const std::string& content, ImageSize size, std::int64_t channels = 3) {
  Image image = Image::of_size(size, channels);
  for (std::int64_t i = 0; i < std::ssize(image.pixels); ++i) {
    const std::int64_t pixel = i / channels;
    image.pixels[static_cast<std::size_t>(i)] = static_cast<std::uint8_t>(
        level(content, i, pixel % size.width, pixel / size.width, i % channels));
  }
  return image;
}

/// Goes on with the hash FNV-1a of 64 bits.
inline std::uint64_t fnv(std::uint64_t hash, std::span<const std::uint8_t> bytes) {
  for (const std::uint8_t byte : bytes) hash = (hash ^ byte) * 0x100000001B3;
  return hash;
}

inline constexpr std::uint64_t kFnvStart = 0xCBF29CE484222325;

}  // namespace lockstep::testing
