#include <array>
#include <cstring>
#include <immintrin.h>

#include "lockstep/data/transforms/ops/affine.h"
#include "lockstep/data/transforms/ops/affine_loops.h"

// The bicubic map for two pixels at once, which fill a vector of eight doubles. Each number is
// computed by the operations of affine_loops.h in their order, so the bytes are the same.
namespace lockstep::data {
namespace {

using EightDoubles = double __attribute__((vector_size(64)));
using EightWords = std::int64_t __attribute__((vector_size(64)));

constexpr std::int64_t kRun = 8;

// Where eight neighbouring pixels of the output lie in the input.
struct Places {
  std::array<const float*, kRun> pixel;
  std::array<double, kRun> dx;
  std::array<double, kRun> dy;
  unsigned inside;  // a bit each
};

EightDoubles floor_of(EightDoubles x) {
  return _mm512_roundscale_pd(x, _MM_FROUND_TO_NEG_INF | _MM_FROUND_NO_EXC);
}

EightDoubles columns_from(std::int64_t first) {
  return static_cast<double>(first) + 0.5 + EightDoubles{0, 1, 2, 3, 4, 5, 6, 7};
}

unsigned inside_of(const AffineSource& source, EightDoubles x, EightDoubles y) {
  const __m512d zero = _mm512_setzero_pd();
  const __m512d width = _mm512_set1_pd(static_cast<double>(source.width));
  const __m512d height = _mm512_set1_pd(static_cast<double>(source.height));
  return static_cast<unsigned>(
      _mm512_cmp_pd_mask(x, zero, _CMP_GE_OQ) & _mm512_cmp_pd_mask(x, width, _CMP_LT_OQ) &
      _mm512_cmp_pd_mask(y, zero, _CMP_GE_OQ) & _mm512_cmp_pd_mask(y, height, _CMP_LT_OQ));
}

Places places_of(const AffineSource& source, const AffineMap& map, double y_out, std::int64_t i) {
  const EightDoubles x_out = columns_from(i);
  const EightDoubles x = map.xx * x_out + map.xy * y_out + map.x0;
  const EightDoubles y = map.yx * x_out + map.yy * y_out + map.y0;
  const EightDoubles column = floor_of(x - 0.5);
  const EightDoubles row = floor_of(y - 0.5);
  Places places{};
  places.inside = inside_of(source, x, y);
  const EightDoubles dx = x - 0.5 - column;
  const EightDoubles dy = y - 0.5 - row;
  const EightWords at = __builtin_convertvector(row, EightWords) * source.stride +
                        __builtin_convertvector(column, EightWords) * kPixelFloats;
  std::memcpy(places.dx.data(), &dx, sizeof dx);
  std::memcpy(places.dy.data(), &dy, sizeof dy);
  for (std::size_t k = 0; k < kRun; ++k) {
    // What lies outside is not read, and no address is made of it.
    places.pixel[k] = source.origin + ((places.inside >> k & 1U) != 0 ? at[k] : 0);
  }
  return places;
}

// Two places; `dx` and `dy` are in all lanes of their pixel.
struct Pair {
  const float* first;
  const float* second;
  EightDoubles dx;
  EightDoubles dy;

  EightDoubles at(std::int64_t floats) const {
    const __m256 both = _mm256_insertf128_ps(
        _mm256_castps128_ps256(_mm_loadu_ps(first + floats)), _mm_loadu_ps(second + floats), 1);
    return _mm512_cvtps_pd(both);
  }
};

EightDoubles twice(double first, double second) {
  return _mm512_insertf64x4(_mm512_set1_pd(first), _mm256_set1_pd(second), 1);
}

EightDoubles along(const Pair& pair, std::int64_t row, bool moves) {
  if (!moves) return pair.at(row);
  return curve(pair.at(row - kPixelFloats), pair.at(row), pair.at(row + kPixelFloats),
      pair.at(row + 2 * kPixelFloats), pair.dx);
}

EightDoubles bicubic_of(const Pair& pair, std::int64_t stride, bool moves_x, bool moves_y) {
  const EightDoubles own = along(pair, 0, moves_x);
  if (!moves_y) return own;
  return curve(along(pair, -stride, moves_x), own, along(pair, stride, moves_x),
      along(pair, 2 * stride, moves_x), pair.dy);
}

// Writes the six bytes of two pixels.
void store_both(EightDoubles colours, std::uint8_t* out) {
  const __m256i levels = _mm512_cvttpd_epi32(colours);
  const __m128i words =
      _mm_packs_epi32(_mm256_castsi256_si128(levels), _mm256_extracti128_si256(levels, 1));
  const __m128i bytes = _mm_packus_epi16(words, words);
  const __m128i order = _mm_setr_epi8(0, 1, 2, 4, 5, 6, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1);
  const std::int64_t six = _mm_cvtsi128_si64(_mm_shuffle_epi8(bytes, order));
  std::memcpy(out, &six, 6);
}

void map_pair(const AffineSource& source, const Places& places, std::size_t k, std::uint8_t* out) {
  const Pair pair{places.pixel[k], places.pixel[k + 1], twice(places.dx[k], places.dx[k + 1]),
      twice(places.dy[k], places.dy[k + 1])};
  const bool moves_x = places.dx[k] != 0 || places.dx[k + 1] != 0;
  const bool moves_y = places.dy[k] != 0 || places.dy[k + 1] != 0;
  store_both(bicubic_of(pair, source.stride, moves_x, moves_y), out);
}

void bicubic_row(
    const AffineSource& source, const AffineMap& shared_map, std::int64_t y, std::uint8_t* out) {
  const AffineMap map = shared_map;  // a copy: `out` could point to the original
  const double y_out = static_cast<double>(y) + 0.5;
  for (std::int64_t i = 0; i < source.width; i += kRun, out += 3 * kRun) {
    const Places places = places_of(source, map, y_out, i);
    const std::int64_t left = source.width - i;
    const unsigned inside = left < kRun ? places.inside & ((1U << left) - 1) : places.inside;
    for (std::size_t k = 0; k < kRun; k += 2) {
      const unsigned both = inside >> k & 3U;
      if (both == 3) map_pair(source, places, k, out + 3 * k);
      if (both != 1 && both != 2) continue;
      const std::size_t one = k + (both - 1);
      store(bicubic({places.pixel[one], source.stride, places.dx[one], places.dy[one]}),
          out + 3 * one);
    }
  }
}

}  // namespace

const AffineKernel& avx512_affine_kernel() {
  static constexpr AffineKernel kKernel{"avx512", map_row<bilinear>, bicubic_row};
  return kKernel;
}

}  // namespace lockstep::data
