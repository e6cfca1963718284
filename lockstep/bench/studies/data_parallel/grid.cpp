#include "lockstep/bench/studies/data_parallel/grid.h"

#include <algorithm>

#include "lockstep/bench/statistics/oversubscription.h"
#include "lockstep/core/error.h"

namespace lockstep::bench {
namespace {

constexpr int kMostPlaces = 4;
// What an epoch of the quick grid is cut down to: about a second of one core's work.
constexpr int kQuickImagesSmall = 15360;
constexpr int kQuickImagesLarge = 512;

// One place is the same for both ways, so it is measured once.
std::vector<GridPoint> with_places(const GridPoint& point, int most_places) {
  std::vector<GridPoint> points{point};
  for (int places = 2; places <= most_places; places *= 2) {
    for (const char* way : {"dp", "ddp"}) {
      points.push_back(point);
      points.back().places = places;
      points.back().way = way;
    }
  }
  return points;
}

void add(std::vector<GridPoint>& grid, const GridPoint& point, int most_places, int images) {
  for (GridPoint each : with_places(point, most_places)) {
    if (images > 0) each.steps = std::max(1, images / (each.batch * each.places));
    grid.push_back(each);
  }
}

std::vector<GridPoint> quick_grid() {
  std::vector<GridPoint> grid;
  for (const int batch : {128, 512}) {
    add(grid, {.model = "mnist-small", .batch = batch}, kMostPlaces, kQuickImagesSmall);
  }
  // A step of it on four places of two cores takes seconds, and is no fair test there.
  add(grid, {.model = "mnist-large", .batch = 128}, 2, kQuickImagesLarge);
  return grid;
}

std::vector<GridPoint> full_grid() {
  std::vector<GridPoint> grid;
  for (const char* model : {"mnist-small", "mnist-large"}) {
    for (const int repeat : {1, 4, 8}) {
      for (const int batch : {128, 256, 512}) {
        add(grid, {.model = model, .repeat = repeat, .batch = batch}, kMostPlaces, 0);
      }
    }
  }
  return grid;
}

std::string id_of(const GridPoint& point) {
  std::string id = concat(point.model, "-r", point.repeat, "-b", point.batch, "-p", point.places);
  if (point.places > 1) id += "-" + point.way;
  // An epoch that is cut is other work than a whole one.
  return point.steps > 0 ? concat(id, "-s", point.steps) : id;
}

// Ten thousand images take the large net half a minute, and what so few steps taught it is nothing.
bool is_tested(const GridPoint& point) { return point.steps == 0 || point.model == "mnist-small"; }

std::vector<std::string> command_of(const GridPoint& point, const StudyOptions& options) {
  std::vector<std::string> command{
      "train", "--model", point.model, "--data", data_parallel_set(options), "--repeat",
      std::to_string(point.repeat), "--batch-size", std::to_string(point.batch), "--opt", "adam",
      "--lr", "0.001", "--epochs", "2",
      // Once, after both epochs: an evaluation between them would leave a snapshot of the best
      // epoch to be written while the second is timed.
      "--val-interval", is_tested(point) ? "0" : "never", "--snapshot-interval", "never",
      "--progress", "none"};
  const auto spreading = spreading_flags(point.way, point.places);
  command.insert(command.end(), spreading.begin(), spreading.end());
  if (point.steps > 0) {
    command.insert(command.end(), {"--limit-train-batches", std::to_string(point.steps)});
  }
  return command;
}

// What costs minutes or proves little is measured less often in the quick grid.
int rounds_of(const GridPoint& point, const StudyOptions& options) {
  if (options.full || options.rounds > 0) return 0;
  if (oversubscribed(point.places, options.cores)) return 1;
  return point.model == "mnist-large" ? 2 : 0;
}

}  // namespace

std::string data_parallel_set(const StudyOptions& options) {
  return options.data_of({"fashion-mnist", "mnist"}, "fashion-mnist");
}

std::vector<GridPoint> data_parallel_grid(bool full) { return full ? full_grid() : quick_grid(); }

std::vector<std::string> spreading_flags(const std::string& way, int places) {
  std::vector<std::string> flags{"--parallel", way};
  const std::string count = std::to_string(places);
  if (way == "dp") flags.insert(flags.end(), {"--places", count});
  if (way == "ddp") {
    // A rank that dies is a failure to record, not one to hide by starting again.
    flags.insert(flags.end(), {"--nproc-per-node", count, "--max-restarts", "0"});
  }
  return flags;
}

int cores_a_place(int cores) { return std::max(1, cores / kMostPlaces); }

StudyCell cell_of(const GridPoint& point, const StudyOptions& options) {
  const int threads = cores_a_place(options.cores);
  return {
      .id = id_of(point),
      .settings =
          {{"model", point.model},
           {"repeat", std::to_string(point.repeat)},
           {"batch", std::to_string(point.batch)},
           {"places", std::to_string(point.places)},
           {"way", point.way}},
      .command = command_of(point, options),
      .places = point.places,
      // A place is so many cores: one place must not have those of four.
      .cores = std::min(options.cores, point.places * threads),
      .environment = {concat("OMP_NUM_THREADS=", threads)},
      .rounds = rounds_of(point, options),
      .not_measurable = ""};
}

}  // namespace lockstep::bench
