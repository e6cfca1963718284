#pragma once

#include <array>
#include <cstdint>
#include <span>

#include "lockstep/data/transforms/transform.h"

namespace lockstep::data {

/// The purpose of a draw, so that one part's draws never shift another's.
enum class Draw : std::uint64_t { kCrop, kFlip, kColour, kErasing };

/// Mixes a counter with a key into four even words: Philox4x32-10 of Salmon et al., Parallel random
/// numbers: as easy as 1, 2, 3 (2011).
std::array<std::uint32_t, 4> philox(
    std::array<std::uint32_t, 4> counter, std::array<std::uint32_t, 2> key);

/// Places of Philox's sequence whose words become normal numbers together.
inline constexpr std::size_t kNormalBlocks = 8;

/// The normal numbers of kNormalBlocks places: four each, in order.
using NormalNumbers = std::array<float, 4 * kNormalBlocks>;

/// Computes normal numbers from the words of philox() at this counter and those that follow it, two
/// from each two words (Box and Muller).
///
/// The bits are the same on every processor: no function of the C library is asked, only additions,
/// multiplications and square roots, which are rounded alike everywhere.
NormalNumbers normal_numbers(
    const std::array<std::uint32_t, 4>& counter, const std::array<std::uint32_t, 2>& key);

/// Does the same without the processor's newer instructions.
NormalNumbers plain_normal_numbers(
    const std::array<std::uint32_t, 4>& counter, const std::array<std::uint32_t, 2>& key);

/// The stream of random numbers for one look at one sample and one part of its transform.
///
/// The numbers depend on key and part alone, not on what was drawn before or on which thread.
///
///     RandomStream stream(key, Draw::kCrop);
///     const double share = stream.uniform(0.08, 1);
class RandomStream {
 public:
  RandomStream(const SampleKey& key, Draw draw);

  /// Draws 32 even bits.
  std::uint32_t bits();

  /// Draws evenly from [0, 1), in steps of 2^-53.
  double uniform();

  /// Draws evenly from [low, high).
  double uniform(double low, double high) { return low + (high - low) * uniform(); }

  /// Draws a whole number, both ends included, each equally likely.
  std::int64_t integer(std::int64_t lowest, std::int64_t highest);

  /// Draws from the normal distribution.
  double normal(double mean, double deviation);

  /// Fills with numbers from the normal distribution of mean 0 and deviation 1; each call begins
  /// with words of its own, four numbers to a block of four.
  void fill_normal(std::span<float> numbers);

 private:
  void skip_blocks(std::size_t blocks);

  std::array<std::uint32_t, 2> key_;
  std::array<std::uint32_t, 4> counter_;
  std::array<std::uint32_t, 4> block_{};
  std::size_t used_ = 4;
};

}  // namespace lockstep::data
