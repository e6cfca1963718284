#pragma once

// For kernels, as simd/vectors.h is.

#include "lockstep/simd/vectors.h"

namespace lockstep::simd {
namespace {

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
}

}  // namespace
}  // namespace lockstep::simd
