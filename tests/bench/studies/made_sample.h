#pragma once

#include <map>
#include <string>
#include <utility>

#include "bench/experiment/study.h"
#include "bench/statistics/load_meter.h"

namespace lockstep::bench::testing {

/// Makes a sample of a study's cell with these values.
inline Sample made_sample(const std::string& study, const StudyCell& cell, int round,
    std::map<std::string, double> values) {
  Sample sample{.study = study, .cell = cell.id, .round = round, .command = cell.command};
  sample.time = "2026-01-31T12:00:00.000Z";
  for (const Setting& setting : cell.settings) sample.settings[setting.name] = setting.value;
  sample.places = cell.places;
  sample.oversubscribed = oversubscribed(cell.places, cell.cores);
  sample.values = std::move(values);
  sample.seconds = 3;
  sample.calibration_seconds = 0.02;
  return sample;
}

}  // namespace lockstep::bench::testing
