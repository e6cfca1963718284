#include <algorithm>

#include "bench/studies/ways/study.h"
#include "bench/study/train_command.h"
#include "lockstep/core/error.h"
#include "lockstep/core/text.h"

namespace lockstep::bench::ways {
namespace {

constexpr int kUsualPlaces[] = {1, 2, 4};
constexpr const char* kProbeTime = "3s";
constexpr std::int64_t kLines = 4;  // of a run; the first warms up

std::vector<int> places_of(const StudyOptions& options) {
  std::vector<int> places = options.ways.places;
  if (places.empty()) {
    for (const int usual : kUsualPlaces)
      if (!options.oversubscribed(usual)) places.push_back(usual);
  }
  std::sort(places.begin(), places.end());
  places.erase(std::unique(places.begin(), places.end()), places.end());
  return places;
}

int cores_of_place(const StudyOptions& options) {
  return std::max(1, options.cores / places_of(options).back());
}

// One process on the cores of several places: what they do without any spreading.
bool has_cores_of(int places, const StudyOptions& options) {
  return options.on_cores() && places * cores_of_place(options) <= options.cores;
}

bool is_cut(const std::string& way) { return way == "mp" || way == "pp"; }
bool is_composed(const std::string& way) { return way == "ddp+mp" || way == "ddp+pp"; }
bool has_schedule(const std::string& way) { return way == "pp" || way == "ddp+pp"; }

// How many stages a replica may have. One replica alone stands for places that cannot be divided.
std::vector<int> stages_of(const std::string& way, int places) {
  if (!is_composed(way)) return {is_cut(way) ? places : 1};
  std::vector<int> found;
  for (int stages = 2; stages <= places / 2; ++stages)
    if (places % stages == 0) found.push_back(stages);
  return found.empty() ? std::vector{places} : found;
}

void add_spread(std::vector<Point>& grid, Point point, const StudyOptions& options) {
  std::vector<std::string> schedules = options.ways.schedules;
  if (!has_schedule(point.way) || schedules.empty()) schedules = {""};
  for (const int stages : stages_of(point.way, point.places)) {
    for (const std::string& schedule : schedules) {
      point.stages = stages;
      point.schedule = schedule;
      grid.push_back(point);
    }
  }
}

void add_way(std::vector<Point>& grid, Point point, const StudyOptions& options) {
  const int places = point.places;
  point.cores = std::min(options.cores, places * cores_of_place(options));
  if (point.way == "serial") {
    point.places = 1;
    if (places == 1 || has_cores_of(places, options)) grid.push_back(point);
  } else if (places > 1) {
    add_spread(grid, point, options);
  }
}

// One place comes first, as the others are compared with it, and then what is most unlike it.
void add_ways(std::vector<Point>& grid, Point point, const StudyOptions& options) {
  std::vector<int> places = places_of(options);
  std::reverse(places.begin(), places.end());
  if (places.back() == 1) std::rotate(places.begin(), places.end() - 1, places.end());
  for (const int each : places) {
    for (const std::string& way : options.ways.ways) {
      point.way = way;
      point.places = each;
      add_way(grid, point, options);
    }
  }
}

// A plus is no letter of a file's name.
std::string id_of(const Point& point) {
  std::string id = point.way;
  std::replace(id.begin(), id.end(), '+', '-');
  id += concat("-p", point.places);
  if (is_composed(point.way)) id += concat("-s", point.stages);
  id += concat("-c", point.cores, "-b", point.batch, "-", point.precision);
  return point.schedule.empty() ? id : concat(id, "-", point.schedule);
}

// As `lockstep train` takes it where --stages-per-place is not given.
int stages_a_place(const Point& point, const StudyOptions& options) {
  const auto& flags = options.ways.train_flags;
  const auto given = std::find(flags.begin(), flags.end(), "--stages-per-place");
  if (given != flags.end()) return parse_number<int>(*(given + 1)).value_or(1);
  return point.schedule == "interleaved" ? 2 : 1;
}

// Replicas are processes, and the stages of each are places in it, as they are without replicas.
Words spreading(const Point& point, const StudyOptions& options) {
  if (is_cut(point.way)) return words_of("--parallel", point.way, "--places", point.places);
  if (!is_composed(point.way)) return spreading_flags(point.way, point.places);
  return words_of("--parallel", point.way, "--nproc-per-node", point.replicas(), "--max-restarts",
      0, "--places", point.stages, "--stages", point.stages * stages_a_place(point, options));
}

Words command_of(const Point& point, const StudyOptions& options, const Words& length) {
  const WaysRequest& ways = options.ways;
  Words command = train_command("--model", ways.model);
  if (!ways.plugin.empty()) add_words(command, words_of("--plugin", ways.plugin));
  if (!options.data.empty()) add_words(command, words_of("--data", options.data.back()));
  add_words(command, ways.train_flags);
  add_words(command, words_of("--batch-size", point.batch_a_replica(), "--precision",
                         point.precision, length, "--val-interval", "never", "--snapshot-interval",
                         "never", "--progress", "none", spreading(point, options)));
  if (!point.schedule.empty()) add_words(command, words_of("--schedule", point.schedule));
  return command;
}

std::string indivisible(const Point& point) {
  const int replicas = point.replicas();
  if (is_composed(point.way) && replicas < 2)
    return concat(point.places,
        " places cannot be several replicas of several stages each, as 4, 6 or 8 can");
  if (point.batch % replicas == 0) return "";
  return concat("a batch of ", point.batch, " cannot be divided among ", replicas, " replicas");
}

StudyCell cell_with(const Point& point, const StudyOptions& options, const Words& length) {
  const int each = point.way == "serial" ? point.cores : cores_of_place(options);
  StudyCell cell{.id = id_of(point),
      .settings = {{"way", point.way}, {"places", concat(point.places)},
          {"cores", concat(point.cores)}, {"batch", concat(point.batch)},
          {"precision", point.precision}},
      .command = command_of(point, options, length),
      .places = point.places,
      .cores = point.cores,
      .environment = threads(each),
      .not_measurable = indivisible(point)};
  if (is_composed(point.way)) cell.settings.push_back({"stages", concat(point.stages)});
  if (!point.schedule.empty()) cell.settings.push_back({"schedule", point.schedule});
  const std::string flags = joined(options.ways.train_flags, " ");
  if (!flags.empty()) cell.settings.push_back({"train_flags", flags});
  cell = on_device(std::move(cell), options.device);
  const auto refused = options.ways.refused.find(cell.id);
  if (refused != options.ways.refused.end()) cell.not_measurable = refused->second;
  return cell;
}

}  // namespace

std::string Point::name() const {
  if (way == "serial") return concat("one process on ", cores, cores == 1 ? " core" : " cores");
  const std::string what = schedule.empty() ? way : concat(way, " ", schedule);
  const std::string how =
      is_composed(way) ? concat(" (", replicas(), " x ", stages, " stages)") : "";
  return concat(what, " on ", places, " places", how);
}

std::vector<Point> grid(const StudyOptions& options) {
  std::vector<Point> points;
  for (const std::string& precision : options.ways.precisions)
    for (const int batch : options.ways.batches)
      add_ways(points, {.batch = batch, .precision = precision}, options);
  check(!points.empty(),
      "bench: one place is serial, which --ways leaves out; add it, or more "
      "--places");
  return points;
}

RunLength run_length(std::int64_t images, int batch) {
  const std::int64_t steps_a_line = std::max<std::int64_t>(1, images / (kLines * batch));
  return {.steps = kLines * steps_a_line, .steps_a_line = steps_a_line};
}

StudyCell cell_of(const Point& point, const StudyOptions& options) {
  const RunLength length = run_length(options.ways.images, point.batch);
  return cell_with(
      point, options, words_of("--max-steps", length.steps, "--log-interval", length.steps_a_line));
}

StudyCell probe_of(const Point& point, const StudyOptions& options) {
  return cell_with(point, options, words_of("--max-time", kProbeTime, "--log-interval", 1));
}

}  // namespace lockstep::bench::ways
