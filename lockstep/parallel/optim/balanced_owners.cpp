#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <vector>

#include "lockstep/core/error.h"
#include "lockstep/parallel/optim/sharded_optimizer.h"

namespace lockstep {
namespace {

std::vector<std::size_t> largest_first(const std::vector<std::int64_t>& elements) {
  std::vector<std::size_t> order(elements.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(),
      [&](std::size_t a, std::size_t b) { return elements[a] > elements[b]; });
  return order;
}

}  // namespace

std::vector<std::vector<int>> balanced_owners(
    const std::vector<std::vector<std::int64_t>>& elements, int ranks) {
  check(ranks >= 1, "balanced_owners: at least 1 rank is needed: ", ranks);
  std::vector<std::int64_t> loads(static_cast<std::size_t>(ranks));
  std::vector<std::vector<int>> owners;
  for (const auto& group : elements) {
    auto& owners_of_group = owners.emplace_back(group.size());
    for (const std::size_t parameter : largest_first(group)) {
      const auto least = std::min_element(loads.begin(), loads.end());
      owners_of_group[parameter] = static_cast<int>(least - loads.begin());
      *least += group[parameter];
    }
  }
  return owners;
}

}  // namespace lockstep
