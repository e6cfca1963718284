#include "lockstep/bench/studies/throughput/throughput_grid.h"

#include <algorithm>

#include "lockstep/bench/studies/data_parallel/grid.h"
#include "lockstep/core/error.h"

namespace lockstep::bench {
namespace {

constexpr int kMostPlaces = 4;  // the study's
constexpr int kFullBatch = 128;
constexpr int kFullSteps = 5000;
constexpr int kQuickSteps = 4;  // three are timed
// A processor without instructions for float16 takes seconds for an image of 224 x 224, hours for a
// batch of the study. Of 32 x 32 one pixel reaches the last layers, and batch norm needs two
// values.
constexpr int kQuickHalfSize = 32;
constexpr int kQuickHalfFactor = 2;
constexpr int kFullHalfSteps = 5;
// Of ResNet50 in training: what an image of 224 x 224 leaves for backward, and what parameters,
// gradients, momentum and the program are. Estimates, on the safe side.
constexpr std::int64_t kBytesAnImage = 100'000'000;
constexpr std::int64_t kBytesAReplica = 700'000'000;

ThroughputPoint spread(const ThroughputPoint& one, const char* way, int places, int factor) {
  ThroughputPoint point = one;
  point.way = way;
  point.places = places;
  point.batch = factor * one.batch;
  return point;
}

ThroughputPoint in_precision(ThroughputPoint point, const char* precision) {
  point.precision = precision;
  return point;
}

// The study has dp alone.
std::vector<ThroughputPoint> quick_grid(int cores) {
  const int places = std::clamp(cores, 2, kMostPlaces);
  const ThroughputPoint one{.batch = places, .steps = kQuickSteps, .log_interval = 1};
  std::vector<ThroughputPoint> grid{one};
  for (const char* way : {"dp", "ddp"}) {
    grid.push_back(spread(one, way, places, 1));
    grid.push_back(spread(one, way, places, kBatchFactor));
  }
  grid.push_back(in_precision(spread(one, "dp", places, kBatchFactor), "bf16-mixed"));
  ThroughputPoint small = spread(one, "dp", places, kQuickHalfFactor);
  small.image_size = kQuickHalfSize;
  grid.push_back(small);
  grid.push_back(in_precision(small, "16-mixed"));
  return grid;
}

std::vector<ThroughputPoint> full_grid() {
  const ThroughputPoint one{.batch = kFullBatch, .steps = kFullSteps};
  std::vector<ThroughputPoint> grid{one};
  for (const char* way : {"dp", "ddp"}) {
    grid.push_back(spread(one, way, kMostPlaces, 1));
    const ThroughputPoint large = spread(one, way, kMostPlaces, kBatchFactor);
    grid.push_back(large);
    grid.push_back(in_precision(large, "bf16-mixed"));
    grid.push_back(in_precision(large, "16-mixed"));
    grid.back().steps = kFullHalfSteps;
    grid.back().log_interval = 1;
  }
  return grid;
}

std::string id_of(const ThroughputPoint& point) {
  return concat(
      point.way, "-p", point.places, "-b", point.batch, "-", point.image_size, "px-",
      point.precision, "-s", point.steps);
}

std::vector<std::string> command_of(const ThroughputPoint& point) {
  std::vector<std::string> command{
      "train",
      "--model",
      "resnet50",
      "--num-classes",
      "1000",
      "--data",
      "mock",
      "--image-size",
      std::to_string(point.image_size),
      "--batch-size",
      std::to_string(point.batch / point.places),
      "--precision",
      point.precision,
      "--opt",
      "sgd",
      "--lr",
      "1e-6",
      "--momentum",
      "0.9",
      "--max-steps",
      std::to_string(point.steps),
      "--log-interval",
      std::to_string(point.log_interval),
      "--val-interval",
      "never",
      "--snapshot-interval",
      "never",
      "--progress",
      "none"};
  const auto spreading = spreading_flags(point.way, point.places);
  command.insert(command.end(), spreading.begin(), spreading.end());
  return command;
}

std::string gigabytes(std::int64_t bytes) {
  return concat((bytes + 500'000'000) / 1'000'000'000, " GB");
}

// A run that is killed for want of memory may take others with it.
std::string memory_lack(const ThroughputPoint& point, std::int64_t memory_bytes) {
  const std::int64_t pixels = std::int64_t{point.image_size} * point.image_size;
  const std::int64_t needed = point.batch * (kBytesAnImage * pixels / (224 * 224)) +
                              (point.way == "ddp" ? point.places : 1) * kBytesAReplica;
  if (memory_bytes == 0 || needed <= memory_bytes) return "";
  return concat(
      "needs about ", gigabytes(needed), " of memory, here are ", gigabytes(memory_bytes),
      "; use a machine with more, or --quick");
}

// Half precision that is computed piece by piece takes a third of the quick grid's time.
int rounds_of(const ThroughputPoint& point, const StudyOptions& options) {
  const bool costly = point.precision != "32" && !options.full;
  return costly && options.rounds == 0 ? 1 : 0;
}

}  // namespace

std::vector<ThroughputPoint> throughput_grid(const StudyOptions& options) {
  return options.full ? full_grid() : quick_grid(options.cores);
}

StudyCell throughput_cell(
    const ThroughputPoint& point, const StudyOptions& options, std::int64_t memory_bytes) {
  const int threads = cores_a_place(options.cores);
  return {
      .id = id_of(point),
      .settings =
          {{"way", point.way},
           {"places", std::to_string(point.places)},
           {"batch", std::to_string(point.batch)},
           {"precision", point.precision},
           {"image_size", std::to_string(point.image_size)},
           {"steps", std::to_string(point.steps)}},
      .command = command_of(point),
      .places = point.places,
      .cores = std::min(options.cores, point.places * threads),
      .environment = {concat("OMP_NUM_THREADS=", threads)},
      .rounds = rounds_of(point, options),
      .not_measurable = memory_lack(point, memory_bytes)};
}

}  // namespace lockstep::bench
