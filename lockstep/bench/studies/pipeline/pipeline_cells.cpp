#include "lockstep/bench/studies/pipeline/pipeline_cells.h"

#include <algorithm>
#include <cmath>

#include "lockstep/bench/studies/pipeline/run_times.h"
#include "lockstep/parallel/schedule/timetable.h"

namespace lockstep::bench {
namespace {

constexpr int kInterleavedStages = 2;  // of each place: what `lockstep train` takes by itself

ScheduleKind kind_of(const PipelinePoint& point) {
  return point.way == kModelParallel ? ScheduleKind::kSequential : schedule_kind(point.way);
}

std::optional<Estimate> times_as_fast(const PipelineCell* base, const PipelineCell& cell) {
  if (base == nullptr) return std::nullopt;
  return ratio_of(base->result, cell.result, kRunSeconds);
}

}  // namespace

std::string PipelineCell::name() const {
  if (point.way == kSinglePlace) return "single place";
  if (point.way == kCoresOfBoth) return "single, cores of both";
  if (point.way == kMicroBatches) return "single, micro-batches";
  return point.way == kModelParallel ? "model parallel" : point.way;
}

std::vector<PipelineCell> pipeline_cells(const Study& study, std::span<const Sample> samples) {
  std::vector<PipelineCell> cells;
  for (CellResult& result : cell_results(study, samples)) {
    PipelineCell cell{
        .point =
            {.way = result.setting("way"),
             .batch = std::stoi(result.setting("batch")),
             .split = std::stoi(result.setting("split"))},
        .cores = std::stoi(result.setting("cores")),
        .result = {}};
    cell.result = std::move(result);
    cells.push_back(std::move(cell));
  }
  return cells;
}

const PipelineCell* find_way(const std::vector<PipelineCell>& cells, const std::string& way) {
  const auto found = std::find_if(
      cells.begin(), cells.end(), [&](const PipelineCell& cell) { return cell.point.way == way; });
  return found == cells.end() ? nullptr : &*found;
}

const PipelineCell* find_way(
    const std::vector<PipelineCell>& cells, const std::string& way, int split) {
  const auto found = std::find_if(cells.begin(), cells.end(), [&](const PipelineCell& cell) {
    return cell.point.way == way && cell.point.split == split;
  });
  return found == cells.end() ? nullptr : &*found;
}

// Samples have the mean and the variance of their own repeats: together they give those of all.
std::optional<MeanOfRuns> mean_of_runs(const PipelineCell& cell) {
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

ScheduleBound bound_of(const PipelineCell& cell) {
  const PipelinePoint& point = cell.point;
  if (!point.is_cut()) return {0, static_cast<double>(point.cores_of_places()), {point.split}};
  const ScheduleKind kind = kind_of(point);
  const int each = kind == ScheduleKind::kInterleaved ? kInterleavedStages : 1;
  const Timetable timetable =
      simulate(make_schedule(kind, kPipelinePlaces, kPipelinePlaces * each, point.chunks()), {});
  ScheduleBound bound{.idle = timetable.idle_share()};
  bound.speed_up = kPipelinePlaces * (1 - bound.idle);
  for (const int live : timetable.most_live_activations) {
    bound.live_images.push_back(live * point.split);
  }
  return bound;
}

std::optional<Estimate> over_single(
    const std::vector<PipelineCell>& cells, const PipelineCell& cell) {
  return times_as_fast(find_way(cells, kSinglePlace), cell);
}

std::optional<Estimate> over_both(
    const std::vector<PipelineCell>& cells, const PipelineCell& cell) {
  return times_as_fast(find_way(cells, kCoresOfBoth), cell);
}

std::optional<Estimate> over_micro_batches(
    const std::vector<PipelineCell>& cells, const PipelineCell& cell) {
  if (!cell.point.is_cut()) return std::nullopt;
  return times_as_fast(find_way(cells, kMicroBatches, cell.point.split), cell);
}

std::optional<double> predicted_seconds(
    const std::vector<PipelineCell>& cells, const PipelineCell& cell) {
  const PipelineCell* single = find_way(cells, kSinglePlace);
  if (single == nullptr || cell.point.way == kSinglePlace) return std::nullopt;
  const auto seconds = single->result.estimate(kRunSeconds);
  if (!seconds) return std::nullopt;
  return seconds->median / bound_of(cell).speed_up;
}

}  // namespace lockstep::bench
