#pragma once

#include <cstddef>
#include <deque>
#include <type_traits>

namespace lockstep::hierarchy {

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
