#include <algorithm>
#include <array>
#include <immintrin.h>
#include <vector>

#include "lockstep/data/transforms/ops/resample.h"

namespace lockstep::data {
namespace {

// Output pixels that a vector of sums holds, each three words of it; the last word is unused.
constexpr std::int64_t kGroup = 5;
constexpr std::size_t kWords = 16;
// A group reads its input from one vector of bytes.
constexpr std::int64_t kWindowBytes = 64;

__m512i load_words(const void* from) { return _mm512_loadu_si512(from); }

// Adds what the upper and the lower halves of the weights gave, rounds, and shifts down to levels.
__m512i levels_of(__m512i upper, __m512i lower) {
  const __m512i sum = _mm512_add_epi32(_mm512_slli_epi32(upper, 11), lower);
  return _mm512_srai_epi32(_mm512_add_epi32(sum, _mm512_set1_epi32(1 << 21)), 22);
}

// A pair of taps for each sum of a group: their places in the window, two a word, and their
// weights.
struct PairVectors {
  std::array<std::uint8_t, kWindowBytes> places{};
  std::array<std::uint32_t, kWords> upper{};
  std::array<std::uint32_t, kWords> lower{};
};

struct Group {
  std::int64_t first_byte;
  std::int64_t pairs;
};

// Arranges an axis for groups; where `fits` is false, some group looks at more than a window.
class GroupedTaps {
 public:
  explicit GroupedTaps(const TapView& taps) : taps_(taps) {
    for (std::int64_t at = 0; at < taps.positions; at += kGroup) {
      add_group(at, std::min(at + kGroup, taps.positions));
      if (!fits) return;
    }
  }

  bool fits = true;
  std::vector<Group> groups;
  std::vector<PairVectors> pairs;  // of one group after the other

 private:
  void add_group(std::int64_t first, std::int64_t end) {
    std::int32_t start = taps_.ranges[first].start;
    std::int32_t last = 0;
    std::int64_t count = 0;
    for (std::int64_t i = first; i < end; ++i) {
      const TapRange range = taps_.ranges[i];
      start = std::min(start, range.start);
      last = std::max(last, range.start + range.count);
      count = std::max<std::int64_t>(count, (range.count + 1) / 2);
    }
    fits = 3 * std::int64_t{last - start} <= kWindowBytes;
    groups.push_back({3 * std::int64_t{start}, count});
    for (std::int64_t pair = 0; pair < count; ++pair) add_pair(first, end, start, pair);
  }

  void add_pair(std::int64_t first, std::int64_t end, std::int32_t start, std::int64_t pair) {
    PairVectors& out = pairs.emplace_back();
    std::size_t word = 0;
    for (std::int64_t i = first; i < end; ++i) {
      const std::int64_t pixel = taps_.ranges[i].start - start + 2 * pair;
      for (std::int64_t byte = 3 * pixel; byte < 3 * pixel + 3; ++byte, ++word) {
        // Places beyond the window have weights of 0: those of a pair that others in the group
        // have.
        out.places[4 * word] = static_cast<std::uint8_t>(byte % kWindowBytes);
        out.places[4 * word + 2] = static_cast<std::uint8_t>((byte + 3) % kWindowBytes);
        out.upper[word] = taps_.upper[i * taps_.stride + pair];
        out.lower[word] = taps_.lower[i * taps_.stride + pair];
      }
    }
  }

  const TapView& taps_;
};

// Sums of one row's group.
struct RowSums {
  __m512i window;
  __m512i upper;
  __m512i lower;

  void add(__m512i places, __m512i upper_weights, __m512i lower_weights) {
    // Every second byte is 0, so that the words of 16 bits are levels.
    constexpr __mmask64 kLevels = 0x5555555555555555;
    const __m512i levels = _mm512_maskz_permutexvar_epi8(kLevels, places, window);
    upper = _mm512_dpwssd_epi32(upper, levels, upper_weights);
    lower = _mm512_dpwssd_epi32(lower, levels, lower_weights);
  }

  void store(std::uint8_t* out) const {
    const __m512i levels = _mm512_max_epi32(levels_of(upper, lower), _mm512_setzero_si512());
    _mm_storeu_si128(reinterpret_cast<__m128i*>(out), _mm512_cvtusepi32_epi8(levels));
  }
};

RowSums begin(const std::uint8_t* row, const Group& group) {
  return {load_words(row + group.first_byte), _mm512_setzero_si512(), _mm512_setzero_si512()};
}

// Two rows at once, which share what they load of the taps.
void filter_two_rows(const RowList& rows, std::int64_t y, const GroupedTaps& taps) {
  const PairVectors* pair = taps.pairs.data();
  std::int64_t at = 0;
  for (const Group& group : taps.groups) {
    RowSums first = begin(rows.in_row(y), group);
    RowSums second = begin(rows.in_row(y + 1), group);
    for (std::int64_t i = 0; i < group.pairs; ++i, ++pair) {
      const __m512i places = load_words(pair->places.data());
      const __m512i upper = load_words(pair->upper.data());
      const __m512i lower = load_words(pair->lower.data());
      first.add(places, upper, lower);
      second.add(places, upper, lower);
    }
    first.store(rows.out_row(y) + at);
    second.store(rows.out_row(y + 1) + at);
    at += 3 * kGroup;
  }
}

void filter_rows_512(const RowList& rows, const TapView& taps) {
  if (rows.channels != 3) return plain_resample_kernel().filter_rows(rows, taps);
  const GroupedTaps grouped(taps);
  if (!grouped.fits) return avx2_resample_kernel().filter_rows(rows, taps);
  for (std::int64_t y = 0; y < rows.rows; y += 2) filter_two_rows(rows, y, grouped);
}

__m512i load_bytes(const std::uint8_t* from) {
  return _mm512_cvtepu8_epi16(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(from)));
}

__m512i word_of(std::uint32_t pair) { return _mm512_set1_epi32(static_cast<int>(pair)); }

// The sums of 32 bytes: of each lane's 8 columns, the first 4 in `even`, the others in `odd`.
struct ColumnSums {
  __m512i upper_even;
  __m512i upper_odd;
  __m512i lower_even;
  __m512i lower_odd;

  void add(__m512i first, __m512i second, __m512i upper, __m512i lower) {
    const __m512i even = _mm512_unpacklo_epi16(first, second);
    const __m512i odd = _mm512_unpackhi_epi16(first, second);
    upper_even = _mm512_dpwssd_epi32(upper_even, even, upper);
    upper_odd = _mm512_dpwssd_epi32(upper_odd, odd, upper);
    lower_even = _mm512_dpwssd_epi32(lower_even, even, lower);
    lower_odd = _mm512_dpwssd_epi32(lower_odd, odd, lower);
  }

  __m256i bytes() const {
    const __m512i words =
        _mm512_packs_epi32(levels_of(upper_even, lower_even), levels_of(upper_odd, lower_odd));
    return _mm512_cvtusepi16_epi8(_mm512_max_epi16(words, _mm512_setzero_si512()));
  }
};

void sum_rows_512(const RowColumn& rows, const TapView& taps, std::int64_t position) {
  const TapRange range = taps.ranges[position];
  const std::int64_t weights = position * taps.stride;
  constexpr std::int64_t kColumns = 32;
  for (std::int64_t column = 0; column < rows.bytes; column += kColumns) {
    const std::uint8_t* at = rows.in + range.start * rows.stride + column;
    ColumnSums sums{};
    for (std::int64_t pair = 0; pair < (range.count + 1) / 2; ++pair, at += 2 * rows.stride) {
      sums.add(load_bytes(at), load_bytes(at + rows.stride), word_of(taps.upper[weights + pair]),
          word_of(taps.lower[weights + pair]));
    }
    const std::int64_t left = std::min(rows.bytes - column, kColumns);
    const auto wanted = static_cast<__mmask32>((std::uint64_t{1} << left) - 1);
    _mm256_mask_storeu_epi8(rows.out + column, wanted, sums.bytes());
  }
}

}  // namespace

const ResampleKernel& avx512_resample_kernel() {
  static constexpr ResampleKernel kKernel{"avx512", filter_rows_512, sum_rows_512};
  return kKernel;
}

}  // namespace lockstep::data
