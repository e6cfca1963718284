#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace lockstep {

/// The facts about a parameter that the cutting of buckets needs.
struct ParameterShape {
  std::size_t bytes = 0;
  std::uint64_t kind = 0;  ///< of equal element type and device: may share a bucket
  bool sparse = false;     ///< its gradient is: it makes a bucket alone
};

/// The parameters whose gradients are reduced together, by index, in the order of filling.
struct BucketPlan {
  std::vector<std::size_t> parameters;
  std::size_t limit = 0;  ///< bytes
};

/// Cuts parameters into buckets by PyTorch's rule (compute_bucket_assignment_by_size in c10d).
///
/// There is one open bucket per kind; it closes when its bytes reach the limit.
/// The first limit serves once, the last for all later buckets. A sparse gradient makes a separate
/// bucket at once, with limit 0. Parameters are taken in the given order; the buckets are returned
/// in the order in which they closed, those that stayed open last.
std::vector<BucketPlan> cut_buckets(const std::vector<ParameterShape>& parameters,
    const std::vector<std::size_t>& order, const std::vector<std::size_t>& limits);

/// Returns the indices size-1 .. 0: backward reaches the last layer first.
std::vector<std::size_t> reverse_order(std::size_t size);

}  // namespace lockstep
