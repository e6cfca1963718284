#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace lockstep::data {

/// Divides the indices 0 to size - 1 into parts by chance, each index in exactly one part.
///
/// A pure function: the same arguments give the same parts on every machine. The fractions are
/// positive and sum to 1; the bounds between parts are rounded to the nearest sample. The indices
/// of a part ascend. A negative size and wrong fractions are an InvalidArgument.
///
///     auto parts = split_by_seed(images.size(), {0.8, 0.1, 0.1}, 42);   // train, val, test
std::vector<std::vector<std::int64_t>> split_by_seed(
    std::int64_t size, const std::vector<double>& fractions, std::uint64_t seed);

/// Does the same within each class: a part has its share of all samples as above, and of each class
/// its share but for a fraction of a sample. What is beyond whole samples goes to the classes with
/// the largest remainders, of equal ones by chance: so small classes are in small parts, too.
std::vector<std::vector<std::int64_t>> stratified_split_by_seed(
    std::span<const std::int64_t> labels, const std::vector<double>& fractions, std::uint64_t seed);

}  // namespace lockstep::data
