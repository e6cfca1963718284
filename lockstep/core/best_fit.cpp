#include "lockstep/core/best_fit.h"

#include <iterator>

namespace lockstep {

std::optional<std::size_t> BestFit::take(std::size_t size) {
  std::size_t start = end_;
  const auto fitting = by_size_.lower_bound({size, 0});
  if (fitting != by_size_.end()) {
    start = take_from(gaps_.find(fitting->second), size);
  } else if (size <= limit_ - end_) {
    end_ += size;
  } else {
    return std::nullopt;
  }
  sizes_.emplace(start, size);
  in_use_ += size;
  return start;
}

std::size_t BestFit::take_from(Gap gap, std::size_t size) {
  const auto [start, room] = *gap;
  remove_gap(gap);
  if (room > size) add_gap(start + size, room - size);
  return start;
}

void BestFit::give_back(std::size_t start) {
  std::size_t size = sizes_.at(start);
  sizes_.erase(start);
  in_use_ -= size;
  const Gap above = gaps_.find(start + size);
  if (above != gaps_.end()) {
    size += above->second;
    remove_gap(above);
  }
  const Gap after = gaps_.lower_bound(start);
  if (after != gaps_.begin()) {
    const Gap below = std::prev(after);
    if (below->first + below->second == start) {
      start = below->first;
      size += below->second;
      remove_gap(below);
    }
  }
  if (start + size == end_) {
    end_ = start;
  } else {
    add_gap(start, size);
  }
}

void BestFit::add_gap(std::size_t start, std::size_t size) {
  gaps_.emplace(start, size);
  by_size_.emplace(size, start);
}

void BestFit::remove_gap(Gap gap) {
  by_size_.erase({gap->second, gap->first});
  gaps_.erase(gap);
}

}  // namespace lockstep
