#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace lockstep {

/// Is one line of metrics.jsonl; what was not measured is left out here and `null` there.
struct MetricRecord {
  double elapsed = 0;  ///< seconds since the run began
  int rank = 0;
  int restart = 0;
  std::int64_t epoch = 0;  ///< counted from 1
  std::int64_t step = 0;   ///< optimizer steps made
  std::string split;       ///< `train`, `val` or `test`; `-ema` after it with averaged weights
  std::optional<double> loss = {};
  std::optional<double> accuracy = {};
  std::optional<double> accuracy5 = {};
  std::optional<double> lr = {};  ///< of the step
  std::optional<double> samples_per_s = {};
  std::optional<double> step_ms = {};
  std::optional<double> data_ms = {};
  std::optional<double> comm_ms = {};
  std::optional<double> loss_scale = {};  ///< of float16; the only one that is left out there, too
};

/// Writes a record as one JSON object; a value that JSON cannot hold is `null` and named in
/// `nonfinite`.
std::string json_line(const MetricRecord& record, const std::string& utc_time);

/// Gives the time now as `2026-01-31T12:00:00.123Z`.
std::string utc_now();

}  // namespace lockstep
