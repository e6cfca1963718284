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

/// Returns the largest of some numbers, of which a NaN may be passed over.
template <typename T>
inline float largest(const T* numbers, std::int64_t count) {
  Floats most = all(to_float(numbers[0]));
  each_vector(count, [&](std::int64_t place, std::int64_t room) {
    const Floats found = first_of(load(numbers + place, room), room, most);
    most = found > most ? found : most;
  });
  return maximum(most);
}

template <typename T>
inline void fill_zero(T* numbers, std::int64_t count) {
  each_vector(count,
      [&](std::int64_t place, std::int64_t room) { store(numbers + place, Floats{}, room); });
}

}  // namespace
}  // namespace lockstep::simd
