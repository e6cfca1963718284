#pragma once

// For kernels, as simd/vectors.h is.

#include "lockstep/simd/vectors.h"

namespace lockstep::nn::fused {
namespace {

/// Calls body with the first of some rows: of four, whose sums do not wait for each other, or one.
/// How many they are is its template argument.
template <typename Body>
inline void in_fours(std::int64_t rows, const Body& body) {
  std::int64_t row = 0;
  for (; row + 4 <= rows; row += 4) body.template operator()<4>(row);
  for (; row < rows; ++row) body.template operator()<1>(row);
}

/// Stores a vector of each row, when all are computed: a load behind a store that is a page away
/// would wait for it.
template <int kRows, typename T>
inline void store_rows(
    const simd::Floats (&values)[kRows], T* to, std::int64_t width, std::int64_t room) {
#pragma GCC unroll 4
  for (int row = 0; row < kRows; ++row) simd::store(to + row * width, values[row], room);
}

inline void add_to(float* sums, simd::Floats more, std::int64_t room) {
  simd::store(sums, simd::load(sums, room) + more, room);
}

}  // namespace
}  // namespace lockstep::nn::fused
