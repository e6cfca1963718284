#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>

#include "lockstep/formats/image/image.h"

namespace lockstep::testing {

/// What images can show, in the order of tests/conformance/transforms.py.
inline constexpr std::array<const char*, 6> kContents{
    "noise", "ramps", "flat", "dull", "checks", "photo"};

/// Makes the image that the script makes by the same formula.
Image image_of(const std::string& content, ImageSize size, std::int64_t channels = 3);

/// Goes on with the hash FNV-1a of 64 bits.
std::uint64_t fnv(std::uint64_t hash, std::span<const std::uint8_t> bytes);

inline constexpr std::uint64_t kFnvStart = 0xCBF29CE484222325;

}  // namespace lockstep::testing
