#pragma once

#include <string>

#include "tests/bench/studies/made_sample.h"

#include "bench/studies/collectives/study.h"

namespace lockstep::bench::collectives {

/// Makes a sample of a cell of the study of collectives in which every call takes a latency and the
/// message at a rate, and a copy 0.1 ns a byte.
inline Sample made_sweep(
    const StudyCell& cell, int round, double latency_seconds, double bytes_per_second) {
  Sample sample = testing::made_sample("collectives", cell, round, {});
  const std::int64_t largest = std::stoll(sample.settings.at("largest"));
  for (const std::int64_t bytes : Point{.largest = largest}.sizes()) {
    const auto size = static_cast<double>(bytes);
    sample.values[seconds_value(bytes)] = latency_seconds + size / bytes_per_second;
    sample.values[copy_value(bytes)] = size / 1e10;
  }
  sample.values["smallest_microseconds"] = 1e6 * (latency_seconds + 1024 / bytes_per_second);
  sample.values["largest_milliseconds"] = 1e3 * static_cast<double>(largest) / bytes_per_second;
  return sample;
}

/// Makes three rounds of every cell: shm ten times as fast as Gloo, staged and threads between,
/// with a spread of some percent.
inline std::vector<Sample> made_sweeps(const Study& study) {
  std::vector<Sample> samples;
  for (const StudyCell& cell : study.cells) {
    const bool gloo = cell.id.find("gloo") != std::string::npos;
    const bool staged = cell.id.find("staged") != std::string::npos;
    const bool threads = cell.id.find("threads") != std::string::npos;
    const double slow = gloo ? 10 : staged ? 3 : threads ? 1.2 : 1;
    for (int round = 1; round <= 3; ++round) {
      const double noise = 1 + 0.02 * round;
      samples.push_back(made_sweep(cell, round, 5e-6 * slow * noise, 8e9 / slow / noise));
    }
  }
  return samples;
}

}  // namespace lockstep::bench::collectives
