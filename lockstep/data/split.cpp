#include "lockstep/data/split.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <random>

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
void shuffle(Indices& indices, std::mt19937_64& engine) {
  for (std::size_t left = indices.size(); left > 1; --left) {
    std::swap(indices[left - 1], indices[draw_below(left, engine)]);
  }
}

/// Deals out the indices in their order, and appends each part's to it.
void deal_out(
    const Indices& indices, const std::vector<double>& fractions, std::vector<Indices>& parts) {
  const auto size = static_cast<std::int64_t>(indices.size());
  double sum = 0;
  auto from = indices.begin();
  for (std::size_t part = 0; part < fractions.size(); ++part) {
    sum += fractions[part];
    const bool is_last = part + 1 == fractions.size();
    const auto bound = is_last ? size : std::llround(sum * static_cast<double>(size));
    const auto to = indices.begin() + bound;
    parts[part].insert(parts[part].end(), from, to);
    from = to;
  }
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
  deal_out(indices, fractions, parts);
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
  std::vector<Indices> parts(fractions.size());
  for (auto& [label, indices] : classes) {
    shuffle(indices, engine);
    deal_out(indices, fractions, parts);
  }
  sort_parts(parts);
  return parts;
}

}  // namespace lockstep::data
