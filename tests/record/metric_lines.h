#pragma once

#include <cstdint>
#include <string>

#include "lockstep/record/metrics.h"

namespace lockstep::testing {

/// Writes a line of training, a second after midnight for each step.
inline std::string train_line(
    int restart, std::int64_t epoch, std::int64_t step, double loss, int second) {
  const MetricRecord record{.restart = restart,
      .epoch = epoch,
      .step = step,
      .split = "train",
      .scores = {.loss = loss},
      .lr = 0.1,
      .samples_per_s = 100.0,
      .step_ms = 500.0};
  std::string time = "2026-01-31T00:00:00.000Z";
  time[17] = static_cast<char>('0' + second / 10);
  time[18] = static_cast<char>('0' + second % 10);
  return json_line(record, time) + "\n";
}

/// Writes a line of an evaluation.
inline std::string evaluation_line(int restart, std::int64_t epoch, std::int64_t step,
    const std::string& split, double loss, double accuracy) {
  const MetricRecord record{.restart = restart,
      .epoch = epoch,
      .step = step,
      .split = split,
      .scores = {.loss = loss, .top1 = accuracy}};
  return json_line(record, "2026-01-31T00:01:00.000Z") + "\n";
}

}  // namespace lockstep::testing
