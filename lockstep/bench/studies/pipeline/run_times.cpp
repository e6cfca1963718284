#include "lockstep/bench/studies/pipeline/run_times.h"

#include <cmath>
#include <limits>
#include <vector>

#include "lockstep/bench/metrics_reader.h"
#include "lockstep/bench/studies/run_summary_file.h"
#include "lockstep/core/error.h"

namespace lockstep::bench {
namespace {

std::vector<double> step_seconds(const std::filesystem::path& file) {
  std::vector<double> seconds;
  for (const MetricLine& line : merged(read_metrics(file).lines)) {
    const MetricRecord& record = line.record;
    if (record.rank != 0 || record.split != "train") continue;
    const auto next = static_cast<std::int64_t>(seconds.size()) + 1;
    if (record.step != next || !record.step_ms)
      throw DataError(concat(file.string(), ": has no time of step ", next));
    seconds.push_back(*record.step_ms / 1000);
  }
  return seconds;
}

std::vector<double> run_seconds(const std::vector<double>& steps, std::size_t batches) {
  std::vector<double> runs;
  for (std::size_t first = 1; first + batches <= steps.size(); first += batches) {
    double seconds = 0;
    for (std::size_t step = first; step < first + batches; ++step) seconds += steps[step];
    runs.push_back(seconds);
  }
  return runs;
}

}  // namespace

std::map<std::string, double> pipeline_values(const std::filesystem::path& run, int batches) {
  const auto file = run / "metrics.jsonl";
  const auto runs = run_seconds(step_seconds(file), static_cast<std::size_t>(batches));
  if (runs.empty())
    throw DataError(concat(file.string(), ": has fewer than ", 1 + batches, " steps"));
  const auto count = static_cast<double>(runs.size());
  double mean = 0, variance = 0;
  for (const double seconds : runs) mean += seconds / count;
  for (const double seconds : runs) variance += (seconds - mean) * (seconds - mean) / count;
  const auto memory = read_run_summary(run).peak_memory_bytes;
  return {
      {kRunSeconds, mean},
      {kRunVariance, variance},
      {kRunRepeats, count},
      {kPeakMemory,
       memory ? static_cast<double>(*memory) : std::numeric_limits<double>::quiet_NaN()}};
}

}  // namespace lockstep::bench
