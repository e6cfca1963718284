#include "lockstep/nn/fused/dropout_kernel.h"

#include "lockstep/simd/lanes.h"

// Note [Dropout]
//
// The random number of a value is a function of the seed and of the value's index: Threefry-2x32
// with 20 rounds (Salmon and others, Parallel random numbers: as easy as 1, 2, 3; 2011), which is
// made of additions, rotations and exclusive ors. The seed is the key. The counter c = 16 b + i,
// i < 16, gives two numbers, for the values 32 b + i and 32 b + 16 + i. So the result depends on
// neither the number of threads nor the width of vectors, and backward draws the same numbers again
// instead of reading a mask.

namespace lockstep::nn::fused {
namespace {

using simd::Floats;
using simd::kLanes;
using simd::lanes;
using simd::load;
using simd::store;
using simd::Words;

constexpr std::int64_t kCountersOfABlock = kDropoutBlock / 2;

struct TwoWords {
  Words first, second;
};

template <int kBits>
inline Words rotated(Words words) {
  return (words << kBits) | (words >> (32 - kBits));
}

template <int kFirst, int kSecond, int kThird, int kFourth>
inline void mix_four_times(TwoWords& words) {
  words.first += words.second;
  words.second = rotated<kFirst>(words.second) ^ words.first;
  words.first += words.second;
  words.second = rotated<kSecond>(words.second) ^ words.first;
  words.first += words.second;
  words.second = rotated<kThird>(words.second) ^ words.first;
  words.first += words.second;
  words.second = rotated<kFourth>(words.second) ^ words.first;
}

inline TwoWords threefry(TwoWords counter, std::uint64_t seed) {
  const auto key0 = static_cast<std::uint32_t>(seed), key1 = static_cast<std::uint32_t>(seed >> 32);
  const std::uint32_t key2 = 0x1BD11BDA ^ key0 ^ key1;
  const auto inject = [&](std::uint32_t first, std::uint32_t second) {
    counter.first += first;
    counter.second += second;
  };
  inject(key0, key1);
  mix_four_times<13, 15, 26, 6>(counter);
  inject(key1, key2 + 1);
  mix_four_times<17, 29, 16, 24>(counter);
  inject(key2, key0 + 2);
  mix_four_times<13, 15, 26, 6>(counter);
  inject(key0, key1 + 3);
  mix_four_times<17, 29, 16, 24>(counter);
  inject(key1, key2 + 4);
  mix_four_times<13, 15, 26, 6>(counter);
  inject(key2, key0 + 5);
  return counter;
}

inline void drop_vector(
    const DropoutJob& job, Words drawn, std::int64_t place, std::int64_t count) {
  if (place >= count) return;
  const Floats input = load(job.inputs + place, count - place);
  store(job.outputs + place, drawn < job.drop_below ? Floats{} : input * job.scale, count - place);
}

inline void drop_blocks(const DropoutJob& shared, Range blocks, std::int64_t count) {
  const DropoutJob job = shared;  // a copy: the outputs could be it, for all that is known
  for (std::int64_t block = blocks.begin; block < blocks.end; ++block) {
    for (std::int64_t i = 0; i < kCountersOfABlock; i += kLanes) {
      const auto counter =
          static_cast<std::uint64_t>((job.blocks_before + block) * kCountersOfABlock + i);
      const TwoWords drawn = threefry({lanes() + static_cast<std::uint32_t>(counter),
                                          Words{} + static_cast<std::uint32_t>(counter >> 32)},
          job.seed);
      const std::int64_t place = block * kDropoutBlock + i;
      drop_vector(job, drawn.first, place, count);
      drop_vector(job, drawn.second, place + kCountersOfABlock, count);
    }
  }
}

}  // namespace

const DropoutKernel& LOCKSTEP_BUILD(dropout)() {
  static constexpr DropoutKernel kKernel{.name = LOCKSTEP_BUILD_NAME, .drop = drop_blocks};
  return kKernel;
}

}  // namespace lockstep::nn::fused
