#include "lockstep/bench/studies/pipeline/grid.h"

#include <algorithm>

#include "lockstep/core/error.h"

namespace lockstep::bench {
namespace {

constexpr int kQuickBatch = 8;
constexpr int kFullRepeats = 2;  // in each of 5 rounds: the study's 10
// One step chooses kernels and takes the memory; the study has it in its times.
constexpr int kWarmUpSteps = 1;

std::vector<PipelinePoint> unpiped(int batch, int repeats) {
  std::vector<PipelinePoint> points;
  for (const char* way : {kSinglePlace, kCoresOfBoth, kModelParallel}) {
    points.push_back({.way = way, .batch = batch, .split = batch, .repeats = repeats});
  }
  return points;
}

std::vector<PipelinePoint> quick_grid() {
  auto points = unpiped(kQuickBatch, 1);
  for (const char* way : {kStudysSchedule, kMicroBatches}) {
    for (const int split : {1, 2, 4}) {
      points.push_back({.way = way, .batch = kQuickBatch, .split = split});
    }
  }
  for (const char* way : {"1f1b", "interleaved", "zero-bubble"}) {
    points.push_back({.way = way, .batch = kQuickBatch, .split = standard_split(kQuickBatch)});
  }
  return points;
}

std::vector<PipelinePoint> full_grid() {
  auto points = unpiped(kPipelineStudyBatch, kFullRepeats);
  for (const char* way : {kStudysSchedule, "1f1b", "interleaved", "zero-bubble", kMicroBatches}) {
    for (const int split : {1, 3, 5, 8, 10, 12, 20, 40, 60}) {
      points.push_back({.way = way, .split = split, .repeats = kFullRepeats});
    }
  }
  return points;
}

std::string id_of(const PipelinePoint& point) {
  const std::string id = concat(point.way, "-b", point.batch);
  return point.chunks() > 1 ? concat(id, "-s", point.split) : id;
}

std::vector<std::string> way_flags(const PipelinePoint& point) {
  if (point.way == kMicroBatches)
    return {"--parallel", "serial", "--grad-accum-steps", std::to_string(point.chunks())};
  if (!point.is_cut()) return {"--parallel", "serial"};
  // By count the net is cut where the study cuts it, after layer2, and in all cells alike.
  std::vector<std::string> flags{
      "--places", std::to_string(kPipelinePlaces), "--balance", "count", "--parallel"};
  if (point.way == kModelParallel) {
    flags.push_back("mp");
    return flags;
  }
  const std::vector<std::string> piped{
      "pp", "--chunks", std::to_string(point.chunks()), "--schedule", point.way};
  flags.insert(flags.end(), piped.begin(), piped.end());
  return flags;
}

std::vector<std::string> command_of(const PipelinePoint& point) {
  const int steps = kWarmUpSteps + kPipelineRunBatches * point.repeats;
  std::vector<std::string> command{
      "train", "--model", "resnet50", "--data", "mock", "--num-classes", "1000", "--image-size",
      "128", "--batch-size",
      // A pipeline divides its batch itself.
      std::to_string(point.way == kMicroBatches ? point.split : point.batch), "--opt", "sgd",
      "--momentum", "0", "--lr", "0.001", "--max-steps", std::to_string(steps), "--log-interval",
      "1", "--val-interval", "never", "--snapshot-interval", "never", "--progress", "none"};
  const auto flags = way_flags(point);
  command.insert(command.end(), flags.begin(), flags.end());
  return command;
}

// Two places are all that the study has, so each may have half of the cores.
int cores_a_pipeline_place(int cores) { return std::max(1, cores / kPipelinePlaces); }

// What the study lacks is measured once when it is quick.
int rounds_of(const PipelinePoint& point, const StudyOptions& options) {
  const bool is_studys = point.chunks() == 1 || point.way == kStudysSchedule;
  return is_studys || options.full || options.rounds > 0 ? 0 : 1;
}

}  // namespace

std::vector<PipelinePoint> pipeline_grid(bool full) { return full ? full_grid() : quick_grid(); }

StudyCell pipeline_cell(const PipelinePoint& point, const StudyOptions& options) {
  const int of_place = cores_a_pipeline_place(options.cores);
  const int of_both = std::min(options.cores, kPipelinePlaces * of_place);
  const bool has_one = of_both == of_place;  // core for two places
  const int cores = std::min(of_both, point.cores_of_places() * of_place);
  return {
      .id = id_of(point),
      .settings =
          {{"way", point.way},
           {"batch", std::to_string(point.batch)},
           {"split", std::to_string(point.split)},
           {"cores", std::to_string(cores)}},
      .command = command_of(point),
      .places = point.is_cut() ? kPipelinePlaces : 1,
      .cores = cores,
      .environment = {concat("OMP_NUM_THREADS=", point.is_cut() ? of_place : cores)},
      .rounds = rounds_of(point, options),
      .not_measurable = point.way == kCoresOfBoth && has_one
                            ? "needs 2 cores and may use 1; allow more (taskset, cgroup)"
                            : ""};
}

}  // namespace lockstep::bench
