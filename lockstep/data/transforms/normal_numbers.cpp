#include <bit>
#include <cmath>
#include <numbers>

#include "lockstep/data/transforms/random_stream.h"
#include "lockstep/simd/instructions.h"

// Compiled once for every processor and once for those with AVX2: a lane is a place of the
// sequence.
namespace lockstep::data {
namespace {

#define LOCKSTEP_INLINE [[gnu::always_inline]] inline

using Counter = std::array<std::uint32_t, 4>;
using Key = std::array<std::uint32_t, 2>;
using Words = std::uint32_t __attribute__((vector_size(4 * kNormalBlocks)));
using SignedWords = std::int32_t __attribute__((vector_size(4 * kNormalBlocks)));
using Products = std::uint64_t __attribute__((vector_size(8 * kNormalBlocks)));
using Lanes = float __attribute__((vector_size(4 * kNormalBlocks)));

struct FourWords {
  Words words[4];
};

LOCKSTEP_INLINE Lanes floats_of(Words words) {
  return __builtin_convertvector(std::bit_cast<SignedWords>(words), Lanes);
}

LOCKSTEP_INLINE Words bits_of(Lanes lanes) { return std::bit_cast<Words>(lanes); }
LOCKSTEP_INLINE Lanes lanes_of(Words bits) { return std::bit_cast<Lanes>(bits); }

LOCKSTEP_INLINE FourWords counters_from(const Counter& counter) {
  const std::uint64_t first = std::uint64_t{counter[1]} << 32 | counter[0];
  const Products places = first + Products{0, 1, 2, 3, 4, 5, 6, 7};
  return {{__builtin_convertvector(places, Words), __builtin_convertvector(places >> 32, Words),
      Words{} + counter[2], Words{} + counter[3]}};
}

// As philox() of each counter.
LOCKSTEP_INLINE FourWords mixed_words(const Counter& counter, Key key) {
  auto [a, b, c, d] = counters_from(counter).words;
  for (int round = 0; round < 10; ++round) {
    const Products first = __builtin_convertvector(a, Products) * std::uint64_t{0xD2511F53};
    const Products second = __builtin_convertvector(c, Products) * std::uint64_t{0xCD9E8D57};
    a = __builtin_convertvector(second >> 32, Words) ^ b ^ key[0];
    b = __builtin_convertvector(second, Words);
    c = __builtin_convertvector(first >> 32, Words) ^ d ^ key[1];
    d = __builtin_convertvector(first, Words);
    key[0] += 0x9E3779B9;
    key[1] += 0xBB67AE85;
  }
  return {{a, b, c, d}};
}

// Is even in (0, 1]: the logarithm of it is finite.
LOCKSTEP_INLINE Lanes open_uniform(Words bits) { return (floats_of(bits >> 8) + 0.5F) * 0x1p-24F; }

// The logarithm of normal positive numbers, by Cephes' polynomial: x = 2^exponent (1 + f), and
// 1 + f is between the roots of 1/2 and 2.
LOCKSTEP_INLINE Lanes log_of(Lanes x) {
  constexpr std::uint32_t kRootOfHalf = 0x3f3504f3;
  const Words above = bits_of(x) - kRootOfHalf;
  const Lanes exponent = __builtin_convertvector(std::bit_cast<SignedWords>(above) >> 23, Lanes);
  const Lanes f = lanes_of((above & 0x7fffffU) + kRootOfHalf) - 1;
  Lanes y = 7.0376836292e-2F * f - 1.1514610310e-1F;
  y = y * f + 1.1676998740e-1F;
  y = y * f - 1.2420140846e-1F;
  y = y * f + 1.4249322787e-1F;
  y = y * f - 1.6668057665e-1F;
  y = y * f + 2.0000714765e-1F;
  y = y * f - 2.4999993993e-1F;
  y = y * f + 3.3333331174e-1F;
  const Lanes square = f * f;
  y = y * f * square - 2.12194440e-4F * exponent - 0.5F * square;
  return f + y + 0.693359375F * exponent;
}

LOCKSTEP_INLINE Lanes root_of(Lanes x) {
  for (std::size_t i = 0; i < kNormalBlocks; ++i) x[i] = std::sqrt(x[i]);
  return x;
}

struct Direction {
  Lanes cosine;
  Lanes sine;
};

LOCKSTEP_INLINE Lanes where(Words mask, Lanes yes, Lanes no) {
  return lanes_of((bits_of(yes) & mask) | (bits_of(no) & ~mask));
}

// The direction after a part of a turn, by Cephes' polynomials within an eighth to both sides of
// each quarter.
LOCKSTEP_INLINE Direction direction_of(Lanes turn) {
  const SignedWords nearest = __builtin_convertvector(4 * turn + 0.5F, SignedWords);
  const Lanes x =
      (turn - 0.25F * __builtin_convertvector(nearest, Lanes)) * (2 * std::numbers::pi_v<float>);
  const Lanes z = x * x;
  const Lanes sine =
      ((-1.9515295891e-4F * z + 8.3321608736e-3F) * z - 1.6666654611e-1F) * z * x + x;
  const Lanes cosine =
      ((2.443315711809948e-5F * z - 1.388731625493765e-3F) * z + 4.166664568298827e-2F) * z * z -
      0.5F * z + 1;
  const Words quarter = std::bit_cast<Words>(nearest);
  const Words is_odd = -(quarter & 1U);
  const Words cosine_sign = ((quarter + 1) & 2U) << 30;
  const Words sine_sign = (quarter & 2U) << 30;
  return {lanes_of(bits_of(where(is_odd, sine, cosine)) ^ cosine_sign),
      lanes_of(bits_of(where(is_odd, cosine, sine)) ^ sine_sign)};
}

LOCKSTEP_INLINE NormalNumbers numbers_of(const Counter& counter, const Key& key) {
  const FourWords mixed = mixed_words(counter, key);
  NormalNumbers numbers;
  for (std::size_t pair = 0; pair < 4; pair += 2) {
    const Lanes radius = root_of(-2 * log_of(open_uniform(mixed.words[pair])));
    const Direction direction = direction_of(open_uniform(mixed.words[pair + 1]));
    const Lanes first = radius * direction.cosine;
    const Lanes second = radius * direction.sine;
    for (std::size_t i = 0; i < kNormalBlocks; ++i) {
      numbers[4 * i + pair] = first[i];
      numbers[4 * i + pair + 1] = second[i];
    }
  }
  return numbers;
}

#if defined(__x86_64__)
[[gnu::target("avx2")]] NormalNumbers avx2_normal_numbers(const Counter& counter, const Key& key) {
  return numbers_of(counter, key);
}
#endif

}  // namespace

NormalNumbers plain_normal_numbers(const Counter& counter, const Key& key) {
  return numbers_of(counter, key);
}

NormalNumbers normal_numbers(const Counter& counter, const Key& key) {
#if defined(__x86_64__)
  static const bool kHasAvx2 = simd::instructions_in_use() >= simd::InstructionSet::kAvx2;
  if (kHasAvx2) return avx2_normal_numbers(counter, key);
#endif
  return plain_normal_numbers(counter, key);
}

}  // namespace lockstep::data
