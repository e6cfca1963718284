#pragma once

#include <cstdint>

#include "lockstep/data/synthetic/plane.h"

namespace lockstep::data {

inline constexpr std::int64_t kTextures = 10;

/// Names a texture: stripes, checks, dots, ...
const char* texture_name(std::int64_t texture);

/// Gives how bright a texture of period kUnit is at a place, 0 to 255. `salt` changes what has no
/// period.
std::int64_t texture_value(std::int64_t texture, Point place, std::uint64_t salt);

}  // namespace lockstep::data
