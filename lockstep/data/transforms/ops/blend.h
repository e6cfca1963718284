#pragma once

#include <algorithm>
#include <cstdint>

namespace lockstep::data {

/// Returns the level at `factor` on the line from one level to another, beyond 1 on its extension;
/// cut off at 0 and 255, and else towards 0 as Pillow's Image.blend does.
inline std::uint8_t blend(std::uint8_t from, std::uint8_t to, float factor) {
  const float level = static_cast<float>(from) + factor * static_cast<float>(to - from);
  return static_cast<std::uint8_t>(static_cast<int>(std::clamp(level, 0.F, 255.F)));
}

}  // namespace lockstep::data
