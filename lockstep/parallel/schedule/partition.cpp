#include "lockstep/parallel/schedule/partition.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <numeric>
#include <string>

#include "lockstep/core/error.h"
#include "lockstep/core/text.h"

namespace lockstep {
namespace {

// What a difference by rounding alone stays below: equal costs must tie.
constexpr double kRounding = 1e-9;

bool is_less(double a, double b) { return b - a > kRounding * std::max(1.0, std::abs(a)); }

/// The unevenness of a cut.
struct Unevenness {
  double cost_squares = std::numeric_limits<double>::infinity();
  double count_squares = std::numeric_limits<double>::infinity();

  bool is_below(const Unevenness& other) const {
    if (is_less(cost_squares, other.cost_squares)) return true;
    return !is_less(other.cost_squares, cost_squares) &&
           is_less(count_squares, other.count_squares);
  }
};

// Note [Partition]
// Two passes of the same recursion over "layers from `first` on, in `parts` blocks": the first
// finds the smallest possible largest block, the second the most even cut that keeps to it.
class Partition {
 public:
  Partition(const std::vector<double>& costs, std::size_t parts)
      : size_(costs.size()), parts_(parts), sums_(size_ + 1) {
    const double largest = *std::max_element(costs.begin(), costs.end());
    // In units of the largest layer, so that kRounding means the same for nanoseconds and bytes.
    for (std::size_t layer = 0; layer < size_; ++layer) {
      sums_[layer + 1] = sums_[layer] + (largest > 0 ? costs[layer] / largest : 0);
    }
  }

  std::vector<int> cut() const {
    const double bound = smallest_bound();
    const auto ends = best_ends(bound);
    std::vector<int> balance;
    for (std::size_t part = parts_, first = 0; part > 0; --part) {
      const std::size_t end = ends[part][first];
      balance.push_back(static_cast<int>(end - first));
      first = end;
    }
    return balance;
  }

 private:
  template <typename Value>
  using Table = std::vector<std::vector<Value>>;  // [parts][first layer]

  double cost(std::size_t first, std::size_t end) const { return sums_[end] - sums_[first]; }

  double smallest_bound() const {
    constexpr double kNone = std::numeric_limits<double>::infinity();
    Table<double> bound(parts_ + 1, std::vector<double>(size_ + 1, kNone));
    bound[0][size_] = 0;
    for (std::size_t part = 1; part <= parts_; ++part) {
      for (std::size_t first = 0; first < size_; ++first) {
        for (std::size_t end = first + 1; end <= size_; ++end) {
          const double largest = std::max(cost(first, end), bound[part - 1][end]);
          bound[part][first] = std::min(bound[part][first], largest);
        }
      }
    }
    return bound[parts_][0];
  }

  Unevenness block(std::size_t first, std::size_t end, const Unevenness& rest) const {
    const double cost_of_block = cost(first, end);
    const auto count = static_cast<double>(end - first);
    return {rest.cost_squares + cost_of_block * cost_of_block, rest.count_squares + count * count};
  }

  // Ends are tried from the shortest block up, and only a better one replaces one that was found.
  Table<std::size_t> best_ends(double bound) const {
    Table<Unevenness> best(parts_ + 1, std::vector<Unevenness>(size_ + 1));
    Table<std::size_t> ends(parts_ + 1, std::vector<std::size_t>(size_ + 1, size_));
    best[0][size_] = {0, 0};
    for (std::size_t part = 1; part <= parts_; ++part) {
      for (std::size_t first = 0; first < size_; ++first) {
        for (std::size_t end = first + 1; end <= size_; ++end) {
          if (is_less(bound, cost(first, end))) break;
          const Unevenness found = block(first, end, best[part - 1][end]);
          if (!found.is_below(best[part][first])) continue;
          best[part][first] = found;
          ends[part][first] = end;
        }
      }
    }
    return ends;
  }

  std::size_t size_;
  std::size_t parts_;
  std::vector<double> sums_;  // of the costs before a layer
};

void check_parts(std::size_t layers, int parts) {
  check(parts >= 1, "partition: at least 1 part is needed: ", parts);
  check(static_cast<std::size_t>(parts) <= layers, "partition: more parts than layers: ", parts,
      " > ", layers, "; take at most ", layers, " stages or split a layer into several");
}

std::string list_of(const std::vector<int>& numbers) {
  std::vector<std::string> words;
  for (const int number : numbers) words.push_back(std::to_string(number));
  return concat("[", joined(words), "]");
}

constexpr const char* kAdvice = "; balance_by_time or balance_by_size find a balance";

}  // namespace

std::vector<int> partition(const std::vector<double>& costs, int parts) {
  check_parts(costs.size(), parts);
  for (std::size_t layer = 0; layer < costs.size(); ++layer) {
    check(costs[layer] >= 0 && std::isfinite(costs[layer]), "partition: the cost of layer ", layer,
        " must be a number of 0 or more: ", costs[layer]);
  }
  return Partition(costs, static_cast<std::size_t>(parts)).cut();
}

std::vector<int> partition_by_count(std::size_t layers, int parts) {
  check_parts(layers, parts);
  const auto size = static_cast<int>(layers);
  std::vector<int> balance(static_cast<std::size_t>(parts), size / parts);
  for (int part = parts - size % parts; part < parts; ++part) {
    ++balance[static_cast<std::size_t>(part)];
  }
  return balance;
}

void check_balance(const std::vector<int>& balance, std::size_t layers, int places) {
  const std::string text = concat("balance ", list_of(balance), ": ");
  check(!balance.empty(), text, "there is no stage", kAdvice);
  for (const int entry : balance) {
    check(entry >= 1, text, "every stage needs at least 1 layer, one has ", entry, kAdvice);
  }
  const auto sum = std::accumulate(balance.begin(), balance.end(), std::size_t{0}, std::plus<>());
  check(sum == layers, text, "adds up to ", sum, " layers, the model has ", layers, kAdvice);
  check(balance.size() <= static_cast<std::size_t>(std::max(places, 0)), text,
      "more stages than places: ", balance.size(), " > ", places,
      "; take more places or fewer stages", kAdvice);
}

std::vector<std::vector<std::size_t>> join_to_units(
    const std::vector<std::int64_t>& layers, std::int64_t unit_bytes) {
  std::vector<std::vector<std::size_t>> units(1);
  std::int64_t bytes = 0;
  for (std::size_t layer = 0; layer < layers.size(); ++layer) {
    const bool is_full = bytes > 0 && bytes >= unit_bytes;
    if (layers[layer] > 0 && is_full) {
      units.emplace_back();
      bytes = 0;
    }
    units.back().push_back(layer);
    bytes += layers[layer];
  }
  return units;
}

}  // namespace lockstep
