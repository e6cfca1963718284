#pragma once

#include <cstddef>
#include <map>
#include <optional>
#include <set>
#include <unordered_map>
#include <utility>

namespace lockstep {

/// A best-fit allocator over a range of addresses.
///
/// A part comes from the smallest free gap that has room, or from the end of what was in use so
/// far; neighbouring gaps become one. Only arithmetic: it touches no memory, and takes no lock.
class BestFit {
 public:
  explicit BestFit(std::size_t limit) : limit_(limit) {}

  /// Returns where a part of `size` begins, or nothing if none is free. Sizes are not rounded.
  std::optional<std::size_t> take(std::size_t size);

  /// Gives a part back that take() returned; throws std::out_of_range for any other.
  void give_back(std::size_t start);

  /// Returns the end of the part that is farthest from 0.
  std::size_t end() const { return end_; }
  std::size_t in_use() const { return in_use_; }

  /// Lists the gaps below end(): start and size.
  const std::map<std::size_t, std::size_t>& gaps() const { return gaps_; }

  /// Lists them as size and start, the smallest first.
  const std::set<std::pair<std::size_t, std::size_t>>& gaps_by_size() const { return by_size_; }

 private:
  using Gap = std::map<std::size_t, std::size_t>::iterator;

  std::size_t take_from(Gap gap, std::size_t size);
  void add_gap(std::size_t start, std::size_t size);
  void remove_gap(Gap gap);

  std::size_t limit_;
  std::size_t end_ = 0, in_use_ = 0;
  std::map<std::size_t, std::size_t> gaps_;                // size by start
  std::set<std::pair<std::size_t, std::size_t>> by_size_;  // the same: size, start
  std::unordered_map<std::size_t, std::size_t> sizes_;     // of parts in use, by start
};

}  // namespace lockstep
