#pragma once

#include <map>
#include <string>
#include <vector>

#include "tests/bench/studies/made_sample.h"

#include "bench/studies/pipeline/study.h"

namespace lockstep::bench::pipeline {

/// Makes a sample of a pipeline's cell: two repeats of those seconds, one a tenth shorter, one a
/// tenth longer.
inline Sample made_run(const StudyCell& cell, int round, double seconds, double mebibytes) {
  Sample sample = testing::made_sample("pipeline", cell, round,
      {{"run_seconds", seconds}, {"run_variance", 0.01 * seconds * seconds}, {"repeats", 2},
          {"peak_memory_bytes", mebibytes * (1 << 20)}});
  sample.oversubscribed = false;
  return sample;
}

/// Makes rounds of all cells; the seconds of a way are those given, or 6, and a percent more in
/// each round; and longer by what a bubble of gpipe costs, and by small micro-batches.
inline std::vector<Sample> made_runs(
    const Study& study, int rounds, const std::map<std::string, double>& seconds) {
  std::vector<Sample> samples;
  for (int round = 1; round <= rounds; ++round) {
    for (const StudyCell& cell : study.cells) {
      const std::string way = cell.settings.at(0).value;
      const double batch = std::stod(cell.settings.at(1).value);
      const double split = std::stod(cell.settings.at(2).value);
      const double base = seconds.contains(way) ? seconds.at(way) : 6;
      const double bubble = split < batch ? 1 + split / batch : 1;
      const double cost = cell.places > 1 ? bubble * (1 + 0.4 / split) : 1;
      const double memory = way == "1f1b" ? 700 : way == "gpipe" ? 1000 : 900;
      samples.push_back(made_run(cell, round, base * cost * (1 + 0.01 * round), memory));
    }
  }
  return samples;
}

}  // namespace lockstep::bench::pipeline
