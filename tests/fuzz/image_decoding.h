#pragma once

#include <cstdlib>
#include <optional>
#include <span>

#include "lockstep/core/error.h"
#include "lockstep/formats/image/image_reader.h"

namespace lockstep::testing {

// Small, so that the fuzzer makes many files a second.
inline const ImageOptions kFuzzOptions{
    .apply_orientation = true, .limits = {.side = 2048, .pixels = 1 << 18, .scans = 20}};

inline Box inner_part(ImageSize size) {
  return {
      size.width / 3, size.height / 3, size.width - size.width / 2, size.height - size.height / 2};
}

template <typename Body>
std::optional<Image> image_or_refusal(const Body& body) {
  try {
    return body();
  } catch (const DataError&) {
    return std::nullopt;
  }
}

/// Reads an image file whole and in part: whatever is read whole must have that part.
inline void read_whole_and_part(std::span<const std::uint8_t> bytes) {
  const auto whole = image_or_refusal([&] { return decode_image(bytes, "fuzz", kFuzzOptions); });
  const auto part = image_or_refusal([&] {
    const ImageReader reader(bytes, "fuzz", kFuzzOptions);
    return reader.read(inner_part(reader.size()));
  });
  if (!whole) return;
  if (!part || part->pixels != crop(whole->view(), inner_part(whole->size)).pixels) std::abort();
}

}  // namespace lockstep::testing
