#include "lockstep/bench/studies/throughput/step_values.h"

#include <cstdint>
#include <vector>

#include "lockstep/bench/metrics_reader.h"
#include "lockstep/bench/studies/run_summary_file.h"
#include "lockstep/core/error.h"

namespace lockstep::bench {
namespace {

/// Is what the steps of some lines came to.
struct Steps {
  std::int64_t count = 0;
  double seconds = 0;
  double data_seconds = 0;
  double samples = 0;
};

/// Reads a line that tells of the steps after `before`.
Steps steps_of(const MetricRecord& line, std::int64_t before, const std::string& file) {
  const auto count = line.step - before;
  const bool whole = count > 0 && line.step_ms && line.samples_per_s && *line.samples_per_s > 0;
  if (!whole) throw DataError(concat(file, ": has no time of step ", line.step));
  const double milliseconds = static_cast<double>(count) * *line.step_ms;
  return {
      .count = count,
      .seconds = milliseconds / 1000,
      .data_seconds = static_cast<double>(count) * line.data_ms.value_or(0) / 1000,
      .samples = *line.samples_per_s * milliseconds / 1000};
}

std::vector<Steps> read_steps(const std::string& file) {
  std::vector<Steps> all;
  std::int64_t before = 0;
  for (const MetricLine& line : read_metrics(file).lines) {
    if (line.record.split != "train") continue;
    all.push_back(steps_of(line.record, before, file));
    before = line.record.step;
  }
  if (all.size() < 2) {
    throw DataError(concat(
        file, ": has ", all.size(),
        " lines of training; it takes two, for the first is not timed"));
  }
  return all;
}

}  // namespace

std::map<std::string, double> step_values(const std::filesystem::path& run) {
  const std::vector<Steps> lines = read_steps((run / "metrics.jsonl").string());
  Steps timed;
  for (std::size_t i = 1; i < lines.size(); ++i) {
    timed.count += lines[i].count;
    timed.seconds += lines[i].seconds;
    timed.data_seconds += lines[i].data_seconds;
    timed.samples += lines[i].samples;
  }
  const auto skipped = read_run_summary(run).skipped_steps;
  return {
      {"seconds_a_sample", timed.seconds / timed.samples},
      {"samples_per_s", timed.samples / timed.seconds},
      {"first_step_seconds", lines.front().seconds / static_cast<double>(lines.front().count)},
      {"timed_steps", static_cast<double>(timed.count)},
      {"data_share", timed.data_seconds / timed.seconds},
      {"skipped_steps", static_cast<double>(skipped.value_or(0))}};
}

}  // namespace lockstep::bench
