#include "bench/experiment/turns.h"

#include <cmath>
#include <numeric>
#include <random>
#include <set>
#include <utility>

#include "lockstep/core/error.h"
#include "lockstep/core/text.h"

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

/// A mean of seconds.
struct Mean {
  double sum = 0;
  int count = 0;

  void add(double seconds) { sum += seconds, ++count; }
  double value() const { return sum / count; }
};

using MeanByCell = std::map<std::string, Mean>;

/// A sample that failed may have ended early: it counts only where its cell has no other.
MeanByCell durations(const Study& study, std::span<const Sample> samples) {
  MeanByCell worked;
  MeanByCell failed;
  for (const Sample& sample : samples) {
    if (sample.study != study.name || !sample.not_measurable.empty()) continue;
    if (std::isfinite(sample.seconds)) {
      (sample.worked() ? worked : failed)[sample.cell].add(sample.seconds);
    }
  }
  worked.merge(failed);
  return worked;
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

std::optional<double> seconds_left(
    const Study& study, std::span<const Sample> samples, std::span<const Turn> rest) {
  const MeanByCell known = durations(study, samples);
  if (known.empty()) return std::nullopt;
  Mean others;
  for (const auto& [cell, mean] : known) others.add(mean.value());
  double seconds = 0;
  for (const Turn& turn : rest) {
    const auto found = known.find(study.cells[turn.cell].id);
    seconds += found == known.end() ? others.value() : found->second.value();
  }
  return seconds;
}

std::string turn_line(
    const Study& study, const Turn& turn, const TurnCount& count, std::optional<double> seconds) {
  std::string line = concat(study.name, ": sample ", count.number);
  if (count.all > 0) line += concat(" of ", count.all);
  line += concat(", round ", turn.round, ": ", study.cells[turn.cell].id);
  if (seconds) line += concat("; about ", format_duration(*seconds), " left");
  return line;
}

std::string sample_line(const Sample& sample, const std::string& log) {
  std::string line = sample.cell + ": " + format_duration(sample.seconds);
  if (std::isfinite(sample.other_share)) {
    const auto percent = std::lround(100 * sample.other_share);
    line += concat("; others used ", percent, " % of the cores");
  }
  if (sample.failure.empty()) return line;
  return concat(line, "; FAILED: ", sample.failure, " (all output: ", log, ")");
}

}  // namespace lockstep::bench
