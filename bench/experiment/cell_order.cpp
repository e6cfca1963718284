#include "bench/experiment/cell_order.h"

#include <numeric>
#include <random>
#include <set>
#include <string>
#include <utility>

namespace lockstep::bench {
namespace {

/// Draws an index; std::uniform_int_distribution differs between libraries.
std::size_t draw_below(std::size_t bound, std::mt19937_64& engine) {
  const std::uint64_t most = std::mt19937_64::max() - std::mt19937_64::max() % bound;
  std::uint64_t drawn = engine();
  while (drawn >= most) drawn = engine();
  return drawn % bound;
}

std::vector<std::size_t> order_of(const Study& study, std::uint64_t seed, int round) {
  if (round > 1 || !study.begins_in_order) return round_order(seed, round, study.cells.size());
  std::vector<std::size_t> order(study.cells.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  return order;
}

bool wants(const StudyCell& cell, int round) {
  return cell.not_measurable.empty() && (cell.rounds == 0 || round <= cell.rounds);
}

}  // namespace

std::vector<std::size_t> round_order(std::uint64_t seed, int round, std::size_t cells) {
  constexpr std::uint64_t kApart =
      0x9e3779b97f4a7c15;  // so that seed 1 round 2 is not seed 2 round 1
  std::mt19937_64 engine(seed + kApart * static_cast<std::uint64_t>(round));
  std::vector<std::size_t> order(cells);
  std::iota(order.begin(), order.end(), std::size_t{0});
  for (std::size_t left = cells; left > 1; --left) {
    std::swap(order[left - 1], order[draw_below(left, engine)]);
  }
  return order;
}

std::vector<Turn> missing_turns(
    const Study& study, std::span<const Sample> samples, std::uint64_t seed, bool retry_failed) {
  std::set<std::pair<std::string, int>> there;
  for (const Sample& sample : samples) {
    const bool counts = sample.worked() || (!sample.failure.empty() && !retry_failed);
    if (sample.study == study.name && counts) there.emplace(sample.cell, sample.round);
  }
  std::vector<Turn> turns;
  for (int round = 1; round <= study.rounds; ++round) {
    for (const std::size_t index : order_of(study, seed, round)) {
      const StudyCell& cell = study.cells[index];
      if (wants(cell, round) && !there.contains({cell.id, round})) turns.push_back({index, round});
    }
  }
  return turns;
}

}  // namespace lockstep::bench
