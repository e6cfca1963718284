#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <type_traits>
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

/// The most items between the nodes at once.
inline constexpr std::size_t kUnderWay = 4;

/// Takes items through three stages: while some are between the nodes, others are within them.
/// `gather` and `spread` block; `send` begins and returns what has a wait(). All ranks of a node
/// make the same calls within it in the same order.
template <typename Gather, typename Send, typename Spread>
void in_stages(std::size_t items, Gather gather, Send send, Spread spread) {
  std::deque<std::invoke_result_t<Send, std::size_t>> under_way;
  std::size_t spread_next = 0;
  const auto finish_one = [&] {
    under_way.front().wait();
    under_way.pop_front();
    spread(spread_next++);
  };
  for (std::size_t item = 0; item < items; ++item) {
    gather(item);
    under_way.push_back(send(item));
    if (under_way.size() == kUnderWay) finish_one();
  }
  while (!under_way.empty()) finish_one();
}

}  // namespace lockstep::hierarchy
