#include "bench/experiment/study_progress.h"

#include <cmath>

#include "lockstep/core/error.h"
#include "lockstep/core/text.h"

namespace lockstep::bench {
namespace {

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
