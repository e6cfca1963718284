#include <algorithm>

#include "bench/studies/throughput/study.h"
#include "bench/study/run_files.h"
#include "bench/study/timed_steps.h"
#include "bench/study/train_command.h"
#include "lockstep/core/error.h"

namespace lockstep::bench::throughput {
namespace {

constexpr int kMostPlaces = 4;  // the study's
constexpr int kFullBatch = 128;
constexpr int kFullSteps = 5000;
constexpr int kQuickSteps = 3;  // that are timed, after one
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
constexpr double kQuickLimit = 300;                // seconds; a sample takes some
constexpr double kFullLimit = 7.0 * 24 * 60 * 60;  // 5000 steps of 512 images on few cores: days

Point spread(Point point, const char* way, int places, int factor) {
  point.way = way;
  point.places = places;
  point.batch *= factor;
  return point;
}

Point in_precision(Point point, const char* precision) {
  point.precision = precision;
  return point;
}

// The study has dp alone.
std::vector<Point> quick_grid(int cores, int work) {
  const int places = std::clamp(cores, 2, kMostPlaces);
  const Point one{.batch = places, .steps = 1 + work * kQuickSteps, .log_interval = 1};
  std::vector<Point> points{one};
  for (const char* way : {"dp", "ddp"}) {
    points.push_back(spread(one, way, places, 1));
    points.push_back(spread(one, way, places, kBatchFactor));
  }
  points.push_back(in_precision(spread(one, "dp", places, kBatchFactor), "bf16-mixed"));
  Point small = spread(one, "dp", places, kQuickHalfFactor);
  small.image_size = kQuickHalfSize;
  points.push_back(small);
  // Computed piece by piece, it needs no more steps to show that it does not pay.
  points.push_back(in_precision(small, "16-mixed"));
  points.back().steps = 1 + kQuickSteps;
  return points;
}

std::vector<Point> full_grid() {
  const Point one{.batch = kFullBatch, .steps = kFullSteps};
  std::vector<Point> points{one};
  for (const char* way : {"dp", "ddp"}) {
    points.push_back(spread(one, way, kMostPlaces, 1));
    const Point large = spread(one, way, kMostPlaces, kBatchFactor);
    points.push_back(large);
    points.push_back(in_precision(large, "bf16-mixed"));
    points.push_back(in_precision(large, "16-mixed"));
    points.back().steps = kFullHalfSteps;
    points.back().log_interval = 1;
  }
  return points;
}

std::string gigabytes(std::int64_t bytes) {
  return concat((bytes + 500'000'000) / 1'000'000'000, " GB");
}

// A run that is killed for want of memory may take others with it.
std::string memory_lack(const Point& point, std::int64_t memory_bytes) {
  const std::int64_t pixels = std::int64_t{point.image_size} * point.image_size;
  const std::int64_t needed =
      point.batch * (kBytesAnImage * pixels / (kStudyImageSize * kStudyImageSize)) +
      (point.way == "ddp" ? point.places : 1) * kBytesAReplica;
  if (memory_bytes == 0 || needed <= memory_bytes) return "";
  return concat("needs about ", gigabytes(needed), " of memory, only ", gigabytes(memory_bytes),
      " here; use a machine with more, or --quick");
}

}  // namespace

std::vector<Point> grid(const StudyOptions& options) {
  return options.full ? full_grid() : quick_grid(options.cores, options.work);
}

StudyCell cell_of(const Point& point, const StudyOptions& options, std::int64_t memory_bytes) {
  const int cores = cores_a_place(options.cores);
  // Half precision that is computed piece by piece takes a third of the quick grid's time.
  const bool once = point.is_half() && !options.full && options.rounds == 0;
  return {.id = concat(point.way, "-p", point.places, "-b", point.batch, "-", point.image_size,
              "px-", point.precision, "-s", point.steps),
      .settings = {{"way", point.way}, {"places", concat(point.places)},
          {"batch", concat(point.batch)}, {"precision", point.precision},
          {"image_size", concat(point.image_size)}, {"steps", concat(point.steps)}},
      .command = train_command("--model", "resnet50", "--num-classes", 1000, "--data",
          "mock:constant", "--image-size", point.image_size, "--batch-size", point.batch_a_place(),
          "--precision", point.precision, "--opt", "sgd", "--lr", "1e-6", "--momentum", "0.9",
          "--max-steps", point.steps, "--log-interval", point.log_interval, "--val-interval",
          "never", "--snapshot-interval", "never", "--progress", "none",
          spreading_flags(point.way, point.places)),
      .places = point.places,
      .cores = std::min(options.cores, point.places * cores),
      .environment = threads(cores),
      .rounds = once ? 1 : 0,
      .not_measurable = options.on_cores() ? memory_lack(point, memory_bytes) : ""};
}

SampleValues values_of(const std::filesystem::path& run) {
  const std::vector<TimedSteps> lines = read_steps(run / "metrics.jsonl");
  if (lines.size() < 2) {
    throw DataError(concat((run / "metrics.jsonl").string(), ": has ", lines.size(),
        " lines of training; it takes two, because the first is not timed"));
  }
  TimedSteps timed;
  for (std::size_t i = 1; i < lines.size(); ++i) timed += lines[i];
  const auto skipped = read_run_summary(run).skipped_steps;
  return {{kSecondsASample, timed.seconds / timed.samples},
      {"samples_per_s", timed.samples / timed.seconds},
      {"first_step_seconds", lines.front().seconds / static_cast<double>(lines.front().count)},
      {"timed_steps", static_cast<double>(timed.count)},
      {"data_share", timed.data_seconds / timed.seconds},
      {"skipped_steps", static_cast<double>(skipped.value_or(0))}};
}

Study make_study(const StudyOptions& options) {
  return StudyOf<Point>{.name = "throughput",
      .title = "Throughput: what a sample of ResNet50 costs",
      .question =
          "Does spreading a batch over places make a sample cheaper, or does it take a larger "
          "batch or half precision?",
      .rounds = options.rounds_or(options.full ? 3 : 2),
      .limit_seconds = options.full ? kFullLimit : options.work * kQuickLimit,
      .grid = grid(options),
      .cell = [options, memory = machine_memory()](
                  const Point& point) { return cell_of(point, options, memory); },
      .values = [](const Point&, const std::filesystem::path& run) { return values_of(run); },
      .conclusion = conclusion,
      .tables = tables,
      .figures = figures,
      .sample_columns = {{kSecondsASample, "a sample [s]"}, {"samples_per_s", "samples/s"},
          {"first_step_seconds", "first step [s]"}, {"data_share", "waited for data"}},
      .device = options.device}
      .make();
}

}  // namespace lockstep::bench::throughput
