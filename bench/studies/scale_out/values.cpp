#include <algorithm>
#include <cstdio>
#include <optional>

#include "bench/studies/scale_out/study.h"
#include "bench/study/run_files.h"
#include "lockstep/core/error.h"
#include "lockstep/record/metrics_reader.h"

namespace lockstep::bench::scale_out {
namespace {

namespace fs = std::filesystem;
using Lines = std::vector<MetricLine>;

constexpr int kPercentStep = 5;

std::string curve_name(const char* what, int percent) {
  char text[32];
  std::snprintf(text, sizeof text, "%s_at_%03d", what, percent);
  return text;
}

Lines of_split(const Lines& lines, const std::string& split) {
  Lines found;
  for (const MetricLine& line : lines) {
    if (line.record.split == split && line.record.rank == 0) found.push_back(line);
  }
  return found;
}

// What comes after the clock's end, as the last validation does, belongs to its last share.
int share_of(const MetricLine& line, double budget) {
  const double percent = 100 * line.record.elapsed / budget;
  for (const int end : curve_percents()) {
    if (percent <= end) return end;
  }
  return 100;
}

// The mean over the steps of a share; a share in which no line was written has none.
void add_train_curve(const Lines& train, double budget, SampleValues& values) {
  std::map<int, std::pair<double, double>> sums;  // of losses and of steps
  std::int64_t before = 0;
  for (const MetricLine& line : train) {
    const auto steps = static_cast<double>(std::max<std::int64_t>(1, line.record.step - before));
    before = line.record.step;
    if (!line.record.scores.loss) continue;
    auto& [loss, weight] = sums[share_of(line, budget)];
    loss += *line.record.scores.loss * steps;
    weight += steps;
  }
  for (const auto& [percent, sum] : sums) {
    values[train_loss_name(percent)] = sum.first / sum.second;
  }
}

void add_val_curve(const Lines& val, double budget, SampleValues& values) {
  for (const int percent : curve_percents()) {
    std::optional<double> newest;
    for (const MetricLine& line : val) {
      if (share_of(line, budget) <= percent) newest = line.record.scores.loss;
    }
    if (newest) values[val_loss_name(percent)] = *newest;
  }
}

// The start of the run is no part of its epochs: it takes as long on any number of nodes.
double seconds_before_training(const MetricRecord& first) {
  return first.elapsed - first.step_ms.value_or(0) * static_cast<double>(first.step) / 1000;
}

// The clock cuts the last epoch; all before it are whole, and each ends with a validation.
void add_epochs(const Lines& train, const Lines& val, SampleValues& values) {
  if (val.size() < 2) return;
  const MetricRecord& last = val[val.size() - 2].record;
  const auto whole = static_cast<double>(val.size() - 1);
  const double steps = static_cast<double>(last.step) / whole;
  values["steps_an_epoch"] = steps;
  values[kEpochSeconds] = (last.elapsed - seconds_before_training(train.front().record)) / whole;
  values[kEpochs] = values.at("steps") / steps;
}

double training_seconds(const SummaryFacts& facts) {
  double seconds = 0;
  for (const auto& [number, epoch] : facts.epochs) seconds += epoch.train_seconds.value_or(0);
  return seconds;
}

SampleValues summary_values(const SummaryFacts& facts) {
  const auto steps = static_cast<double>(facts.steps.value_or(0));
  const auto ranks = static_cast<double>(facts.world_size.value_or(1));
  return {{"steps", steps}, {"step_seconds", training_seconds(facts) / steps},
      {"global_batch", ranks * static_cast<double>(facts.batch_size.value_or(0))},
      {kBestValLoss, or_nan(facts.best_value)}, {"test_loss", or_nan(facts.best_test.loss)},
      {"test_accuracy", or_nan(facts.best_test.top1)}};
}

// Each attempt keeps the run's own time from its snapshot on, so what the clock on the wall has
// gone further from one attempt to the next was lost: death, start, and the work that was made
// again.
void add_losses(const Lines& lines, SampleValues& values) {
  const MetricLine& first = lines.front();
  const MetricLine& last = lines.back();
  const auto next = std::find_if(lines.begin(), lines.end(),
      [&](const MetricLine& line) { return line.record.restart > first.record.restart; });
  if (next == lines.end() || !first.unix_seconds || !last.unix_seconds) return;
  const double killed = std::prev(next)->record.elapsed;
  const double wall = *last.unix_seconds - *first.unix_seconds;
  values["killed_after_seconds"] = killed;
  values["made_again_seconds"] = std::max(0.0, killed - next->record.elapsed);
  values["lost_seconds"] = wall - (last.record.elapsed - first.record.elapsed);
}

void check_ending(const SummaryFacts& facts, bool killed, const std::string& file) {
  if (facts.stopped_by != "time") {
    throw DataError(
        concat(file, ": the run was ended by '", facts.stopped_by, "', not by its time"));
  }
  if (facts.steps.value_or(0) < 1) throw DataError(concat(file, ": not one step was made"));
  if (killed && facts.restarts.value_or(0) < 1) {
    throw DataError(concat(
        file, ": a worker was to be killed, but the run was never started again; was it over?"));
  }
}

}  // namespace

std::vector<int> curve_percents() {
  std::vector<int> percents;
  for (int percent = kPercentStep; percent <= 100; percent += kPercentStep) {
    percents.push_back(percent);
  }
  return percents;
}

std::string train_loss_name(int percent) { return curve_name("train_loss", percent); }

std::string val_loss_name(int percent) { return curve_name("val_loss", percent); }

SampleValues values_of(const Point& point, const fs::path& run) {
  const SummaryFacts facts = read_run_summary(run);
  check_ending(facts, point.killed, (run / "summary.json").string());
  const MetricsFile metrics = read_metrics(run / "metrics.jsonl");
  const Lines lines = merged(metrics.lines);
  const Lines train = of_split(lines, "train"), val = of_split(lines, "val");
  if (train.empty()) throw DataError(concat((run / "metrics.jsonl").string(), ": has no training"));
  SampleValues values = summary_values(facts);
  values["learning_rate"] = or_nan(train.back().record.lr);
  values["model_bytes"] = static_cast<double>(fs::file_size(run / "model.safetensors"));
  add_epochs(train, val, values);
  add_train_curve(train, point.budget_seconds, values);
  add_val_curve(val, point.budget_seconds, values);
  if (point.killed) {
    values["restarts"] = static_cast<double>(*facts.restarts);
    add_losses(metrics.lines, values);
  }
  return values;
}

}  // namespace lockstep::bench::scale_out
