#pragma once

#include <map>
#include <string>
#include <vector>

#include "tests/bench/studies/made_sample.h"

#include "bench/studies/ddp_scaling/study.h"

namespace lockstep::bench::ddp_scaling {

/// Returns the seconds of ten epochs by `NODES PLACES LAUNCHER`.
using ScalingSeconds = std::map<std::string, double>;

inline ScalingSeconds usual_scaling() {
  return {{"1 1 train", 1000}, {"1 2 run", 520}, {"1 2 torchrun", 525}, {"2 2 hosts", 700},
      {"2 4 hosts", 800}, {"2 4 hosts-torchrun", 880}};
}

/// Makes a study whose cells can all be measured, whatever this machine has.
inline Study made_scaling_study(int cores) {
  Study study = make_study({.full = true, .cores = cores});
  for (StudyCell& cell : study.cells) cell.not_measurable.clear();
  return study;
}

inline std::string scaling_key(const StudyCell& cell) {
  std::string key;
  for (const char* name : {"nodes", "places", "started by"}) {
    for (const Setting& setting : cell.settings) {
      if (setting.name == name) key += (key.empty() ? "" : " ") + setting.value;
    }
  }
  return key;
}

inline Sample made_scaling_sample(
    const Study& study, const StudyCell& cell, int round, double seconds) {
  Sample sample = testing::made_sample(study.name, cell, round,
      {{"run_seconds", seconds}, {"first_epoch_seconds", seconds / 10 + 1},
          {"epoch_seconds", seconds / 10}, {"epoch_share", 1}, {"trained_seconds", seconds},
          {"samples_per_s", 500000 / seconds}, {"train_loss", 4.2},
          {"evaluation_seconds", seconds / 100}, {"evaluated_images", 10000},
          {"checkpoint_seconds", 0.25}, {"between_seconds", seconds / 10 + 2.5},
          {"whole_seconds", 1.1 * seconds + 2.5}});
  sample.seconds = 1.1 * seconds + 2.5 + 3;
  return sample;
}

/// Makes three rounds of the cells that have seconds; those of a round differ by a common factor.
inline std::vector<Sample> made_scaling_rounds(const Study& study, const ScalingSeconds& seconds) {
  std::vector<Sample> samples;
  for (int round = 1; round <= 3; ++round) {
    for (const StudyCell& cell : study.cells) {
      const auto found = seconds.find(scaling_key(cell));
      if (found == seconds.end()) continue;
      samples.push_back(
          made_scaling_sample(study, cell, round, found->second * (1 + 0.01 * round)));
    }
  }
  return samples;
}

}  // namespace lockstep::bench::ddp_scaling
