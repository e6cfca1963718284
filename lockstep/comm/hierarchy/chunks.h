#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace lockstep::hierarchy {

/// Some consecutive elements of a tensor.
struct Part {
  std::int64_t begin = 0;
  std::int64_t count = 0;

  bool operator==(const Part&) const = default;
};

/// Returns how many ranks of each node carry a message of this size between the nodes, of `most`
/// that could: a short one takes the first rank alone.
int lanes_for(std::int64_t bytes, int most);

/// Cuts a message into chunks that pass through the levels one behind the other: large enough for
/// the network, small enough that the first and the last one, which overlap with nothing, take a
/// small part of the time. Chunks begin at multiples of 64 elements for each lane.
std::vector<Part> cut_into_chunks(std::int64_t elements, std::size_t element_bytes, int lanes);

/// Returns what of a chunk one of `lanes` ranks carries: parts are disjoint, cover the chunk, and
/// begin at multiples of 64 elements.
Part part_of_lane(const Part& chunk, int lane, int lanes);

}  // namespace lockstep::hierarchy
