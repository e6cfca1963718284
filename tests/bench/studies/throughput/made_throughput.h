#pragma once

#include <map>
#include <string>
#include <vector>

#include "tests/bench/studies/made_sample.h"

#include "bench/studies/throughput/study.h"

namespace lockstep::bench::throughput {

/// Makes a sample of a cell that took this many seconds for an image.
inline Sample made_step_sample(const StudyCell& cell, int round, double seconds) {
  return testing::made_sample("throughput", cell, round,
      {{"seconds_a_sample", seconds}, {"samples_per_s", 1 / seconds},
          {"first_step_seconds", 9 * seconds}, {"timed_steps", 3}, {"data_share", 0.01},
          {"skipped_steps", cell.id.find("-16-") != std::string::npos ? 2 : 0}});
}

/// The seconds for an image in the cells of the quick grid on two cores, by their ids.
using SecondsByCell = std::map<std::string, double>;

inline SecondsByCell usual_seconds() {
  return {{"serial-p1-b2-224px-32-s4", 0.4}, {"dp-p2-b2-224px-32-s4", 0.25},
      {"dp-p2-b8-224px-32-s4", 0.22}, {"ddp-p2-b2-224px-32-s4", 0.24},
      {"ddp-p2-b8-224px-32-s4", 0.2}, {"dp-p2-b8-224px-bf16-mixed-s4", 0.44},
      {"dp-p2-b4-32px-32-s4", 0.01}, {"dp-p2-b4-32px-16-mixed-s4", 0.5}};
}

/// Makes three rounds of the cells that have a number.
inline std::vector<Sample> made_rounds(const Study& study, const SecondsByCell& seconds) {
  std::vector<Sample> samples;
  for (int round = 1; round <= 3; ++round) {
    for (const StudyCell& cell : study.cells) {
      const auto found = seconds.find(cell.id);
      if (found == seconds.end()) continue;
      samples.push_back(made_step_sample(cell, round, found->second * (1 + 0.01 * round)));
    }
  }
  return samples;
}

}  // namespace lockstep::bench::throughput
