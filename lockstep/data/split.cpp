#include "lockstep/data/split.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <numeric>
#include <random>
#include <utility>

#include "lockstep/core/error.h"

namespace lockstep::data {
namespace {

using Indices = std::vector<std::int64_t>;

constexpr double kTolerance = 1e-9;

void check_fractions(const std::vector<double>& fractions) {
  double sum = 0;
  for (const double fraction : fractions) {
    check(
        fraction > 0 && fraction <= 1, "split: a fraction must be above 0, at most 1: ", fraction);
    sum += fraction;
  }
  check(std::abs(sum - 1) <= kTolerance, "split: the fractions must sum to 1: ", sum);
}

/// Draws a number below the bound, each equally often.
std::uint64_t draw_below(std::uint64_t bound, std::mt19937_64& engine) {
  const std::uint64_t whole_rounds = std::mt19937_64::max() - std::mt19937_64::max() % bound;
  std::uint64_t number = engine();
  while (number >= whole_rounds) number = engine();
  return number % bound;
}

// The standard fixes this engine's numbers but neither its distributions nor std::shuffle.
template <typename Item>
void shuffle(std::vector<Item>& items, std::mt19937_64& engine) {
  for (std::size_t left = items.size(); left > 1; --left) {
    std::swap(items[left - 1], items[draw_below(left, engine)]);
  }
}

/// Returns how many of so many samples each part gets, its bounds rounded to the nearest sample.
Indices part_sizes(std::int64_t size, const std::vector<double>& fractions) {
  Indices sizes;
  double sum = 0;
  std::int64_t before = 0;
  for (std::size_t part = 0; part < fractions.size(); ++part) {
    sum += fractions[part];
    const bool is_last = part + 1 == fractions.size();
    const std::int64_t bound = is_last ? size : std::llround(sum * static_cast<double>(size));
    sizes.push_back(bound - std::exchange(before, bound));
  }
  return sizes;
}

/// Deals out the indices in their order, so many to each part, and appends them to it.
void deal_out(const Indices& indices, const Indices& sizes, std::vector<Indices>& parts) {
  auto from = indices.begin();
  for (std::size_t part = 0; part < sizes.size(); ++part) {
    const auto to = from + sizes[part];
    parts[part].insert(parts[part].end(), from, to);
    from = to;
  }
}

/// The share of a class in a part, beyond whole samples.
struct Remainder {
  double share = 0;
  std::size_t of_class = 0, part = 0;
};

/// Returns how many samples of each class go to each part: whole shares first, then one more by
/// largest remainder, of equal ones by chance, as long as class and part lack some.
std::vector<Indices> class_sizes(
    const Indices& classes, const std::vector<double>& fractions, std::mt19937_64& engine) {
  Indices left = classes;
  Indices lacking =
      part_sizes(std::accumulate(classes.begin(), classes.end(), std::int64_t{0}), fractions);
  std::vector<Indices> sizes(classes.size(), Indices(fractions.size()));
  const auto give = [&](std::size_t of_class, std::size_t part, std::int64_t count) {
    sizes[of_class][part] += count;
    left[of_class] -= count;
    lacking[part] -= count;
  };
  std::vector<Remainder> remainders;
  for (std::size_t of_class = 0; of_class < classes.size(); ++of_class) {
    for (std::size_t part = 0; part < fractions.size(); ++part) {
      const double share = fractions[part] * static_cast<double>(classes[of_class]);
      const double whole = std::floor(share + kTolerance);
      give(of_class, part, static_cast<std::int64_t>(whole));
      remainders.push_back({share - whole, of_class, part});
    }
  }
  shuffle(remainders, engine);
  std::ranges::stable_sort(remainders, std::ranges::greater(),
      [](const Remainder& remainder) { return std::round(remainder.share / kTolerance); });
  // Of more than two parts the first round may leave some.
  while (std::ranges::any_of(left, [](std::int64_t count) { return count > 0; }))
    for (const auto& [share, of_class, part] : remainders)
      if (left[of_class] > 0 && lacking[part] > 0) give(of_class, part, 1);
  return sizes;
}

void sort_parts(std::vector<Indices>& parts) {
  for (auto& part : parts) std::sort(part.begin(), part.end());
}

}  // namespace

std::vector<Indices> split_by_seed(
    std::int64_t size, const std::vector<double>& fractions, std::uint64_t seed) {
  check(size >= 0, "split: the size must not be negative: ", size);
  check_fractions(fractions);
  Indices indices(static_cast<std::size_t>(size));
  std::iota(indices.begin(), indices.end(), 0);
  std::mt19937_64 engine(seed);
  shuffle(indices, engine);
  std::vector<Indices> parts(fractions.size());
  deal_out(indices, part_sizes(size, fractions), parts);
  sort_parts(parts);
  return parts;
}

std::vector<Indices> stratified_split_by_seed(std::span<const std::int64_t> labels,
    const std::vector<double>& fractions, std::uint64_t seed) {
  check_fractions(fractions);
  std::map<std::int64_t, Indices> classes;
  for (std::size_t i = 0; i < labels.size(); ++i) {
    classes[labels[i]].push_back(static_cast<std::int64_t>(i));
  }
  std::mt19937_64 engine(seed);
  Indices counts;
  for (auto& [label, indices] : classes) {
    shuffle(indices, engine);
    counts.push_back(std::ssize(indices));
  }
  const auto sizes = class_sizes(counts, fractions, engine);
  std::vector<Indices> parts(fractions.size());
  auto of_class = sizes.begin();
  for (const auto& [label, indices] : classes) deal_out(indices, *of_class++, parts);
  sort_parts(parts);
  return parts;
}

}  // namespace lockstep::data
