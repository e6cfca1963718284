#pragma once

// For kernels, as simd/vectors.h is.

#include "lockstep/simd/vectors.h"

namespace lockstep::simd {
namespace {

/// Returns 0, 1, 2 and so on.
inline Words lanes() {
  Words words;
  for (int lane = 0; lane < kLanes; ++lane) words[lane] = static_cast<std::uint32_t>(lane);
  return words;
}

/// Returns as many lanes of a vector as there is room for, the others of `other`.
inline Floats first_of(Floats vector, std::int64_t room, Floats other) {
  return lanes() < static_cast<std::uint32_t>(room) ? vector : other;
}

inline float maximum(Floats vector) {
  float most = vector[0];
  for (int lane = 1; lane < kLanes; ++lane) most = vector[lane] > most ? vector[lane] : most;
  return most;
}

}  // namespace
}  // namespace lockstep::simd
