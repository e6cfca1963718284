#include <cstring>
#include <immintrin.h>

#include "lockstep/data/transforms/ops/affine_loops.h"
#include "lockstep/data/transforms/ops/resample.h"

namespace lockstep::data {
namespace {

// Adds what the upper and the lower halves of the weights gave, rounds, and shifts down to levels.
__m256i levels(__m256i upper, __m256i lower) {
  const __m256i sum = _mm256_add_epi32(_mm256_slli_epi32(upper, 11), lower);
  return _mm256_srai_epi32(_mm256_add_epi32(sum, _mm256_set1_epi32(1 << 21)), 22);
}

__m256i word(std::uint32_t pair) { return _mm256_set1_epi32(static_cast<int>(pair)); }

__m128i load(const std::uint8_t* from) {
  return _mm_loadu_si128(reinterpret_cast<const __m128i*>(from));
}

__m256i load_both(const std::uint8_t* first, const std::uint8_t* second) {
  return _mm256_inserti128_si256(_mm256_castsi128_si256(load(first)), load(second), 1);
}

// Brings two neighbouring pixels' levels of a channel together as 16-bit numbers:
// r0 g0 b0 r1 g1 b1 ... to r0 r1 g0 g1 b0 b1 and zeros.
__m256i paired_channels(__m256i pixels) {
  const __m128i order = _mm_setr_epi8(0, -1, 3, -1, 1, -1, 4, -1, 2, -1, 5, -1, -1, -1, -1, -1);
  return _mm256_shuffle_epi8(pixels, _mm256_broadcastsi128_si256(order));
}

void store_pixel(__m128i pixel, std::uint8_t* out) {
  const int bytes = _mm_cvtsi128_si32(pixel);
  std::memcpy(out, &bytes, sizeof bytes);
}

// Two rows below each other. One lane is one of them, so that both take the same broadcast weights.
void filter_colours(const RowList& rows, std::int64_t y, const TapView& taps) {
  const std::uint8_t* first_row = rows.in_row(y);
  const std::uint8_t* second_row = rows.in_row(y + 1);
  for (std::int64_t position = 0; position < taps.positions; ++position) {
    const TapRange range = taps.ranges[position];
    const std::int64_t first = position * taps.stride;
    __m256i upper = _mm256_setzero_si256();
    __m256i lower = _mm256_setzero_si256();
    for (std::int64_t pair = 0; pair < (range.count + 1) / 2; ++pair) {
      const std::int64_t at = 3 * range.start + 6 * pair;
      const __m256i pixels = paired_channels(load_both(first_row + at, second_row + at));
      upper = _mm256_add_epi32(upper, _mm256_madd_epi16(pixels, word(taps.upper[first + pair])));
      lower = _mm256_add_epi32(lower, _mm256_madd_epi16(pixels, word(taps.lower[first + pair])));
    }
    __m256i sums = levels(upper, lower);
    sums = _mm256_packs_epi32(sums, sums);
    sums = _mm256_packus_epi16(sums, sums);
    store_pixel(_mm256_castsi256_si128(sums), rows.out_row(y) + 3 * position);
    store_pixel(_mm256_extracti128_si256(sums, 1), rows.out_row(y + 1) + 3 * position);
  }
}

void filter_rows(const RowList& rows, const TapView& taps) {
  if (rows.channels != 3) return plain_resample_kernel().filter_rows(rows, taps);
  for (std::int64_t y = 0; y < rows.rows; y += 2) filter_colours(rows, y, taps);
}

// The sums of 16 bytes: columns 0 to 3 and 8 to 11 in `even`, the others in `odd`.
struct Sums {
  __m256i upper_even;
  __m256i upper_odd;
  __m256i lower_even;
  __m256i lower_odd;
};

void add_rows(Sums& sums, __m256i first, __m256i second, __m256i upper, __m256i lower) {
  const __m256i even = _mm256_unpacklo_epi16(first, second);
  const __m256i odd = _mm256_unpackhi_epi16(first, second);
  sums.upper_even = _mm256_add_epi32(sums.upper_even, _mm256_madd_epi16(even, upper));
  sums.upper_odd = _mm256_add_epi32(sums.upper_odd, _mm256_madd_epi16(odd, upper));
  sums.lower_even = _mm256_add_epi32(sums.lower_even, _mm256_madd_epi16(even, lower));
  sums.lower_odd = _mm256_add_epi32(sums.lower_odd, _mm256_madd_epi16(odd, lower));
}

__m128i bytes_of(const Sums& sums) {
  const __m256i even = levels(sums.upper_even, sums.lower_even);
  const __m256i odd = levels(sums.upper_odd, sums.lower_odd);
  const __m256i words = _mm256_packs_epi32(even, odd);
  return _mm_packus_epi16(_mm256_castsi256_si128(words), _mm256_extracti128_si256(words, 1));
}

void store_bytes(__m128i bytes, std::int64_t left, std::uint8_t* out) {
  if (left >= 16) {
    _mm_storeu_si128(reinterpret_cast<__m128i*>(out), bytes);
  } else {
    std::memcpy(out, &bytes, static_cast<std::size_t>(left));
  }
}

void sum_rows(const RowColumn& rows, const TapView& taps, std::int64_t position) {
  const TapRange range = taps.ranges[position];
  const std::int64_t weights = position * taps.stride;
  for (std::int64_t column = 0; column < rows.bytes; column += 16) {
    const std::uint8_t* at = rows.in + range.start * rows.stride + column;
    Sums sums{};
    for (std::int64_t pair = 0; pair < (range.count + 1) / 2; ++pair, at += 2 * rows.stride) {
      add_rows(sums, _mm256_cvtepu8_epi16(load(at)), _mm256_cvtepu8_epi16(load(at + rows.stride)),
          word(taps.upper[weights + pair]), word(taps.lower[weights + pair]));
    }
    store_bytes(bytes_of(sums), rows.bytes - column, rows.out + column);
  }
}

}  // namespace

const ResampleKernel& avx2_resample_kernel() {
  static constexpr ResampleKernel kKernel{"avx2", filter_rows, sum_rows};
  return kKernel;
}

const AffineKernel& avx2_affine_kernel() {
  static constexpr AffineKernel kKernel{"avx2", map_row<bilinear>, map_row<bicubic>};
  return kKernel;
}

}  // namespace lockstep::data
