#pragma once

#include <array>
#include <cstdint>

namespace lockstep::data {

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

}  // namespace lockstep::data
