#include "bench/study/timed_steps.h"

#include "lockstep/core/error.h"
#include "lockstep/record/metrics_reader.h"

namespace lockstep::bench {
namespace {

// Reads a line that covers the steps after `before`.
TimedSteps steps_of(const MetricRecord& line, std::int64_t before, const std::string& file) {
  const auto count = line.step - before;
  const bool whole = count > 0 && line.step_ms && line.samples_per_s && *line.samples_per_s > 0;
  if (!whole) throw DataError(concat(file, ": has no time of step ", line.step));
  const double seconds_a_millisecond = static_cast<double>(count) / 1000;
  const double seconds = seconds_a_millisecond * *line.step_ms;
  return {.count = count,
      .seconds = seconds,
      .data_seconds = seconds_a_millisecond * line.data_ms.value_or(0),
      .comm_seconds = seconds_a_millisecond * line.comm_ms.value_or(0),
      .samples = *line.samples_per_s * seconds};
}

}  // namespace

TimedSteps& TimedSteps::operator+=(const TimedSteps& later) {
  count += later.count;
  seconds += later.seconds;
  data_seconds += later.data_seconds;
  comm_seconds += later.comm_seconds;
  samples += later.samples;
  return *this;
}

std::vector<TimedSteps> read_steps(const std::filesystem::path& file) {
  std::vector<TimedSteps> all;
  std::int64_t before = 0;
  for (const MetricLine& line : read_metrics(file).lines) {
    if (line.record.split != "train") continue;
    all.push_back(steps_of(line.record, before, file.string()));
    before = line.record.step;
  }
  return all;
}

}  // namespace lockstep::bench
