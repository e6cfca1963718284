#pragma once

<<<<<<< HEAD
=======
// For kernels, as simd/vectors.h is.

>>>>>>> kernels
#include "lockstep/simd/vectors.h"

namespace lockstep::simd {
namespace {

<<<<<<< HEAD
/// Returns e to the power of each value, within 2 units in the last place, of values that are less
/// than -87 or more than 88 as of those; a NaN stays one. By Cephes' expf: e^x = 2^n e^r with r
/// between half of -ln 2 and half of ln 2, and a polynomial for e^r.
inline Floats exponential(Floats value) {
  value = value < -87.0F ? all(-87.0F) : value;
  value = value > 88.0F ? all(88.0F) : value;
  constexpr float kRounder = 12582912.0F;  // 1.5 * 2^23, whose last place is 1
  const Floats shifted = value * 1.44269504F + kRounder, whole = shifted - kRounder;
  const Floats rest = value - whole * 0.693359375F - whole * -2.12194440e-4F;
  Floats sum = rest * 1.9875691500e-4F + 1.3981999507e-3F;
  constexpr float kFurther[] = {
      8.3334519073e-3F, 4.1665795894e-2F, 1.6666665459e-1F, 5.0000001201e-1F};
  for (const float next : kFurther) sum = sum * rest + next;
  const Words power = reinterpret_cast<Words>(shifted) - 0x4b400000U + 127U;
  return (sum * rest * rest + rest + 1.0F) * reinterpret_cast<Floats>(power << 23);
=======
inline Floats at_least(Floats vector, float least) { return vector < least ? all(least) : vector; }
inline Floats at_most(Floats vector, float most) { return vector > most ? all(most) : vector; }

// e^x within 2e-7 of itself for x from -87 to 88; beyond, what it is there. Of x = n ln 2 + r, e^r
// is Taylor's series to r^6, and 2^n is written into the exponent. A NaN stays one.
inline Floats exponential(Floats x) {
  constexpr float kPerLog2 = 1.44269504F, kLog2 = 0.693359375F, kLog2Rest = -2.12194440e-4F;
  constexpr float kToInteger = 12582912;  // 1.5 * 2^23: has no room for fractions
  const Floats within = at_most(at_least(x, -87), 88);
  const Floats moved = within * kPerLog2 + kToInteger, whole = moved - kToInteger;
  const Floats rest = within - whole * kLog2 - whole * kLog2Rest;
  Floats series = rest * (1.0F / 720) + 1.0F / 120;
  series = series * rest + 1.0F / 24;
  series = series * rest + 1.0F / 6;
  series = series * rest + 0.5F;
  series = series * rest + 1.0F;
  series = series * rest + 1.0F;
  const Words exponent = (reinterpret_cast<Words>(moved) + 127) << 23;
  return series * reinterpret_cast<Floats>(exponent);
>>>>>>> kernels
}

}  // namespace
}  // namespace lockstep::simd
