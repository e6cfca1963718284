#pragma once

// For kernels, as simd/vectors.h is.

#include "lockstep/simd/vectors.h"

namespace lockstep::simd {
namespace {

/// Returns e to the power of each value, within 2 units in the last place between -87 and 88; 0 of
/// values below -87.7, infinity of those above 88.4; a NaN stays one. By Cephes' expf: e^x = 2^n
/// e^r with r between half of -ln 2 and half of ln 2, and a polynomial for e^r. Of the bounds n is
/// -127 and 128, and what is then made as 2^n is 0 and infinity.
inline Floats exponential(Floats value) {
  value = value < -88.0F ? all(-88.0F) : value;
  value = value > 88.5F ? all(88.5F) : value;
  constexpr float kRounder = 12582912.0F;  // 1.5 * 2^23, whose last place is 1
  const Floats shifted = value * 1.44269504F + kRounder, whole = shifted - kRounder;
  const Floats rest = value - whole * 0.693359375F - whole * -2.12194440e-4F;
  Floats sum = rest * 1.9875691500e-4F + 1.3981999507e-3F;
  constexpr float kFurther[] = {
      8.3334519073e-3F, 4.1665795894e-2F, 1.6666665459e-1F, 5.0000001201e-1F};
  for (const float next : kFurther) sum = sum * rest + next;
  const Words power = reinterpret_cast<Words>(shifted) - 0x4b400000U + 127U;
  return (sum * rest * rest + rest + 1.0F) * reinterpret_cast<Floats>(power << 23);
}

}  // namespace
}  // namespace lockstep::simd
