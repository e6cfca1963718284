#pragma once

#include <cstdint>
#include <filesystem>
#include <vector>

namespace lockstep::bench {

/// Totals over some steps of a run's training.
struct TimedSteps {
  std::int64_t count = 0;
  double seconds = 0;
  double data_seconds = 0;  ///< of them, waiting for data
  double comm_seconds = 0;  ///< of them, waiting for other ranks in backward
  double samples = 0;       ///< of all ranks

  TimedSteps& operator+=(const TimedSteps& later);
};

/// Reads the steps that each line of a metrics.jsonl covers; lines of training without a time are a
/// DataError.
std::vector<TimedSteps> read_steps(const std::filesystem::path& file);

}  // namespace lockstep::bench
