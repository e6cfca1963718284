#include <algorithm>
#include <cmath>
#include <limits>

#include "bench/studies/pipeline/study.h"
#include "bench/study/predicted_step.h"
#include "bench/study/run_files.h"
#include "bench/study/train_command.h"
#include "lockstep/core/error.h"
#include "lockstep/parallel/schedule/timetable.h"
#include "lockstep/record/metrics_reader.h"

namespace lockstep::bench::pipeline {
namespace {

constexpr int kQuickBatch = 8;
constexpr int kQuickRounds = 2;
constexpr int kWorkForStudyBatch = 10;
constexpr int kFullRounds = 5;  // of two repeats: the study's ten
constexpr int kFullRepeats = 2;
constexpr double kQuickLimit = 300;           // seconds; a sample takes a few
constexpr double kFullLimit = 2.0 * 60 * 60;  // seven batches of 120 on one slow core
// One step chooses kernels and takes the memory; the study has it in its times.
constexpr int kWarmUpSteps = 1;
constexpr int kInterleavedStages = 2;  // of each place: what `lockstep train` takes by itself

std::vector<Point> unpiped(int batch, int repeats) {
  std::vector<Point> points;
  for (const char* way : {kSinglePlace, kCoresOfBoth, kModelParallel}) {
    points.push_back({.way = way, .batch = batch, .split = batch, .repeats = repeats});
  }
  return points;
}

// A part of the study's splits, and one of each schedule that it lacks.
std::vector<Point> short_grid(int batch, const std::vector<int>& splits, int repeats) {
  std::vector<Point> points = unpiped(batch, repeats);
  for (const char* way : {kStudysSchedule, kMicroBatches}) {
    for (const int split : splits)
      points.push_back({.way = way, .batch = batch, .split = split, .repeats = repeats});
  }
  for (const char* way : {"1f1b", "interleaved", "zero-bubble"}) {
    points.push_back(
        {.way = way, .batch = batch, .split = standard_split(batch), .repeats = repeats});
  }
  return points;
}

Words way_flags(const Point& point) {
  if (point.way == kMicroBatches)
    return words_of("--parallel", "serial", "--grad-accum-steps", point.chunks());
  if (!point.is_cut()) return words_of("--parallel", "serial");
  // By count the net is cut where the study cuts it, after layer2, and in all cells alike.
  const Words cut = words_of("--places", kPlaces, "--balance", "count", "--parallel");
  if (point.way == kModelParallel) return words_of(cut, "mp");
  return words_of(cut, "pp", "--chunks", point.chunks(), "--schedule", point.way);
}

Words command_of(const Point& point) {
  return train_command("--model", "resnet50", "--data", "mock:fresh", "--num-classes", 1000,
      "--image-size", 128, "--batch-size",
      // A pipeline divides its batch itself.
      point.way == kMicroBatches ? point.split : point.batch, "--opt", "sgd", "--momentum", 0,
      "--lr", "0.001", "--loss", "mse", "--max-steps", kWarmUpSteps + kRunBatches * point.repeats,
      "--log-interval", 1, "--val-interval", "never", "--snapshot-interval", "never", "--progress",
      "none", way_flags(point));
}

// What the study lacks is measured once when it is quick.
int rounds_of(const Point& point, const StudyOptions& options) {
  const bool is_studys = point.chunks() == 1 || point.way == kStudysSchedule;
  return is_studys || options.full || options.rounds > 0 ? 0 : 1;
}

// Why one place cannot have the cores of two.
std::string missing_cores(bool has_one, const StudyOptions& options) {
  if (!options.on_cores()) return "two devices do not make one place, as two sets of cores do";
  return has_one ? "needs 2 cores and may use 1; allow more (taskset, cgroup)" : "";
}

std::vector<double> step_seconds(const std::filesystem::path& file) {
  std::vector<double> seconds;
  for (const MetricLine& line : merged(read_metrics(file).lines)) {
    const MetricRecord& record = line.record;
    if (record.rank != 0 || record.split != "train") continue;
    const auto next = std::ssize(seconds) + 1;
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

std::string Point::name() const {
  if (way == kSinglePlace) return "single place";
  if (way == kCoresOfBoth) return "single, cores of both";
  if (way == kMicroBatches) return "single, micro-batches";
  return way == kModelParallel ? "model parallel" : way;
}

std::vector<Point> grid(const StudyOptions& options) {
  if (options.full) {
    auto points = unpiped(kStudyBatch, kFullRepeats);
    for (const char* way : {kStudysSchedule, "1f1b", "interleaved", "zero-bubble", kMicroBatches}) {
      for (const int split : {1, 3, 5, 8, 10, 12, 20, 40, 60}) {
        points.push_back({.way = way, .split = split, .repeats = kFullRepeats});
      }
    }
    return points;
  }
  const bool has_time = options.work >= kWorkForStudyBatch;
  return has_time ? short_grid(kStudyBatch, {5, 10, 20, 40, 60}, 1)
                  : short_grid(kQuickBatch, {1, 2, 4}, options.work);
}

StudyCell cell_of(const Point& point, const StudyOptions& options) {
  // Two places are all that the study has, so each may have half of the cores.
  const int of_place = std::max(1, options.cores / kPlaces);
  const int of_both = std::min(options.cores, kPlaces * of_place);
  const int cores = std::min(of_both, point.cores_of_places() * of_place);
  return {.id = concat(
              point.way, "-b", point.batch, point.chunks() > 1 ? concat("-s", point.split) : ""),
      .settings = {{"way", point.way}, {"batch", concat(point.batch)},
          {"split", concat(point.split)}, {"cores", concat(cores)}},
      .command = command_of(point),
      .places = point.is_cut() ? kPlaces : 1,
      .cores = cores,
      .environment = threads(point.is_cut() ? of_place : cores),
      .rounds = rounds_of(point, options),
      .not_measurable =
          point.way == kCoresOfBoth ? missing_cores(of_both == of_place, options) : ""};
}

SampleValues values_of(const std::filesystem::path& run, int batches) {
  const auto file = run / "metrics.jsonl";
  const auto runs = run_seconds(step_seconds(file), static_cast<std::size_t>(batches));
  if (runs.empty())
    throw DataError(concat(file.string(), ": has fewer than ", 1 + batches, " steps"));
  const auto count = static_cast<double>(runs.size());
  double mean = 0, variance = 0;
  for (const double seconds : runs) mean += seconds / count;
  for (const double seconds : runs) variance += (seconds - mean) * (seconds - mean) / count;
  const auto memory = read_run_summary(run).peak_memory_bytes;
  return {{kRunSeconds, mean}, {kRunVariance, variance}, {kRunRepeats, count},
      {kPeakMemory,
          memory ? static_cast<double>(*memory) : std::numeric_limits<double>::quiet_NaN()}};
}

Study make_study(const StudyOptions& options) {
  return StudyOf<Point>{.name = "pipeline",
      .title = "Pipeline: ResNet50 cut over two places",
      .question =
          "What does it cost to cut a net over two places, and how much of it do a pipeline, its "
          "split size and its schedule win back?",
      .rounds = options.rounds_or(options.full ? kFullRounds : kQuickRounds),
      .limit_seconds = options.full ? kFullLimit : options.work * kQuickLimit,
      .grid = grid(options),
      .cell = [options](const Point& point) { return cell_of(point, options); },
      .values = [](const Point&,
                    const std::filesystem::path& run) { return values_of(run, kRunBatches); },
      .conclusion = conclusion,
      .tables = tables,
      .figures = figures,
      .sample_columns = {{kRunSeconds, "run [s]"}, {kRunRepeats, "repeats"}},
      .device = options.device}
      .make();
}

const Cell* find_way(const Cells& cells, const std::string& way) {
  return first_where(cells, [&](const Cell& cell) { return cell.way == way; });
}

const Cell* find_way(const Cells& cells, const std::string& way, int split) {
  return first_where(
      cells, [&](const Cell& cell) { return cell.way == way && cell.split == split; });
}

// Samples have the mean and the variance of their own repeats: together they give those of all.
std::optional<MeanOfRuns> mean_of_runs(const Cell& cell) {
  double count = 0, sum = 0, squares = 0;
  for (const Sample& sample : cell.result.samples) {
    if (!sample.worked() || !sample.values.contains(kRunSeconds)) continue;
    const double mean = sample.values.at(kRunSeconds), repeats = sample.values.at(kRunRepeats);
    count += repeats;
    sum += repeats * mean;
    squares += repeats * (sample.values.at(kRunVariance) + mean * mean);
  }
  if (count <= 0 || !std::isfinite(squares)) return std::nullopt;
  const double mean = sum / count;
  const double variance = std::max(0.0, squares / count - mean * mean);  // rounding
  return MeanOfRuns{mean, std::sqrt(variance), static_cast<int>(count)};
}

ScheduleBound bound_of(const Point& point) {
  if (!point.is_cut()) return {0, static_cast<double>(point.cores_of_places()), {point.split}};
  const ScheduleKind kind =
      point.way == kModelParallel ? ScheduleKind::kSequential : schedule_kind(point.way);
  const int each = kind == ScheduleKind::kInterleaved ? kInterleavedStages : 1;
  const Timetable timetable =
      simulate(make_schedule(kind, kPlaces, kPlaces * each, point.chunks()), {});
  ScheduleBound bound{.idle = timetable.idle_share()};
  bound.speed_up = kPlaces * (1 - bound.idle);
  for (const int live : timetable.most_live_activations) {
    bound.live_images.push_back(live * point.split);
  }
  return bound;
}

namespace {

plan::Way planned_way(const Point& point) {
  if (point.way == kModelParallel)
    return {.stages = kPlaces, .schedule = ScheduleKind::kSequential};
  return {.stages = kPlaces, .schedule = schedule_kind(point.way), .micro_batches = point.chunks()};
}

}  // namespace

std::optional<Estimate> over_single(const Cells& cells, const Cell& cell) {
  return ratio_of(find_way(cells, kSinglePlace), &cell, kRunSeconds);
}

std::optional<Estimate> over_both(const Cells& cells, const Cell& cell) {
  return ratio_of(find_way(cells, kCoresOfBoth), &cell, kRunSeconds);
}

std::optional<Estimate> over_micro_batches(const Cells& cells, const Cell& cell) {
  if (!cell.is_cut()) return std::nullopt;
  return ratio_of(find_way(cells, kMicroBatches, cell.split), &cell, kRunSeconds);
}

std::optional<double> predicted_seconds(const Cells& cells, const Cell& cell) {
  const Cell* single = find_way(cells, kSinglePlace);
  if (single == nullptr || cell.way == kSinglePlace) return std::nullopt;
  const auto seconds = single->median(kRunSeconds);
  if (!seconds) return std::nullopt;
  if (!cell.is_cut()) return *seconds / bound_of(cell).speed_up;
  return predicted_step({.batch = static_cast<double>(cell.chunks()), .seconds = *seconds},
      {.places = kPlaces}, planned_way(cell), cell.chunks());
}

}  // namespace lockstep::bench::pipeline
