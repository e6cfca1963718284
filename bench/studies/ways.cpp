#include "bench/studies/ways.h"

#include <algorithm>
#include <iostream>
#include <iterator>
#include <map>
#include <optional>
#include <tuple>
#include <vector>

#include "bench/experiment/sample_process.h"
#include "bench/study/verdict.h"
#include "lockstep/core/error.h"
#include "lockstep/core/exit_code.h"
#include "lockstep/core/text.h"
#include "lockstep/train/record/run_directory.h"

namespace lockstep::bench::ways {
namespace {

namespace fs = std::filesystem;

using Cell = Measured<Point>;
using Cells = std::vector<Cell>;

constexpr int kUsualPlaces[] = {1, 2, 4};
constexpr const char* kProbeTime = "3s";
constexpr std::int64_t kLines = 4;       // of a run; the first warms up
constexpr double kTrialLimit = 30 * 60;  // seconds
constexpr double kRunSeconds = 4;        // of one that is as fast as the probe
constexpr double kLimit = 30 * 60;       // seconds; of a slow net a single step may take minutes
constexpr int kMostRounds = 20;
constexpr double kMuch = 0.1;  // of the time: worth a word

// From the way that is simplest to start and to understand.
constexpr const char* kFromSimple[] = {
    "serial", "dp", "ddp", "fsdp", "mp", "pp", "ddp+mp", "ddp+pp"};

std::vector<int> places_of(const StudyOptions& options) {
  std::vector<int> places = options.ways.places;
  if (places.empty()) {
    for (const int usual : kUsualPlaces)
      if (!options.oversubscribed(usual)) places.push_back(usual);
  }
  std::ranges::sort(places);
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

void add_way(std::vector<Point>& grid, Point point, const StudyOptions& options) {
  const int places = point.places;
  point.cores = std::min(options.cores, places * cores_of_place(options));
  if (point.way == "serial") {
    point.places = 1;
    if (places == 1 || has_cores_of(places, options)) grid.push_back(point);
    return;
  }
  if (places == 1) return;
  std::vector<std::string> schedules = options.ways.schedules;
  if (!has_schedule(point.way) || schedules.empty()) schedules = {""};
  for (const int stages : stages_of(point.way, places)) {
    for (const std::string& schedule : schedules) {
      point.stages = stages;
      point.schedule = schedule;
      grid.push_back(point);
    }
  }
}

// One place comes first, since the others are compared with it; then the most places.
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

std::vector<Point> grid(const StudyOptions& options) {
  std::vector<Point> points;
  for (const std::string& precision : options.ways.precisions)
    for (const int batch : options.ways.batches)
      add_ways(points, {.batch = batch, .precision = precision}, options);
  check(!points.empty(),
      "bench: one place is serial, which --ways leaves out; add it, or more --places");
  return points;
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
  const auto given = std::ranges::find(flags, "--stages-per-place");
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
  const auto unless = [](bool without, const Words& words) { return without ? Words() : words; };
  return train_command("--model", ways.model,
      unless(ways.plugin.empty(), {"--plugin", ways.plugin}),
      options.data.empty() ? Words() : words_of("--data", options.data.back()), ways.train_flags,
      "--batch-size", point.batch_a_replica(), "--precision", point.precision, length,
      "--val-interval", "never", "--snapshot-interval", "never", "--progress", "none",
      spreading(point, options), unless(point.schedule.empty(), {"--schedule", point.schedule}));
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

StudyCell cell_of(const Point& point, const StudyOptions& options) {
  const RunLength length = run_length(options.ways.images, point.batch);
  return cell_with(
      point, options, words_of("--max-steps", length.steps, "--log-interval", length.steps_a_line));
}

// What is tried before the first sample.

void say(const std::string& line) { std::cerr << "lockstep bench: ways: " << line << std::endl; }

// What `lockstep` itself said last; a launcher's ranks and libraries may have said more.
std::string last_words(const SampleEnd& end) {
  const std::string ours = "lockstep: ";
  const auto found = std::find_if(end.last_lines.rbegin(), end.last_lines.rend(),
      [&](const std::string& line) { return line.starts_with(ours); });
  return found == end.last_lines.rend() ? failure_reason(end, kTrialLimit)
                                        : found->substr(ours.size());
}

// Why a cell cannot be trained; empty if it can. Data that cannot be read are no cell's own fault.
std::string refusal_of(Trials& trials, StudyCell cell) {
  if (!cell.not_measurable.empty()) return cell.not_measurable;
  cell.command.emplace_back("--dry-run");
  const SampleEnd end = trials.run(cell, trials.run_of(cell), kTrialLimit);
  if (end.status.succeeded()) return "";
  const std::string reason = last_words(end);
  if (end.status.result() == static_cast<int>(ExitCode::kData)) throw DataError(reason);
  return reason;
}

// Images of a run that takes some seconds at the rate of this cell.
std::int64_t images_at(Trials& trials, const StudyCell& cell) {
  const fs::path run = trials.run_of(cell);
  const SampleEnd end = trials.run(cell, run, kTrialLimit);
  check(end.status.succeeded(), "bench: ", cell.id, " cannot be trained: ", last_words(end));
  auto lines = read_steps(run / "metrics.jsonl");
  fs::remove_all(run);
  if (lines.empty()) throw DataError(concat(cell.id, ": a run of some seconds made no step"));
  if (lines.size() > 1) lines.erase(lines.begin());  // it warms up
  TimedSteps timed;
  for (const TimedSteps& line : lines) timed += line;
  return std::max<std::int64_t>(
      1, static_cast<std::int64_t>(kRunSeconds * timed.samples / timed.seconds));
}

// How cells compare.

// One process with the fewest cores, of the same batch and precision; nullptr if there is none.
const Cell* serial_of(const Cell& cell) {
  const Cell* fewest = nullptr;
  for (const Cell& each : *cell.cells) {
    const bool has_same_work = each.batch == cell.batch && each.precision == cell.precision;
    if (each.way != "serial" || !has_same_work) continue;
    if (fewest == nullptr || each.cores < fewest->cores) fewest = &each;
  }
  return fewest;
}

// How many times as fast a cell is as serial_of(); nothing for that itself.
std::optional<Estimate> speed_up(const Cell& cell) {
  const Cell* base = serial_of(cell);
  return base == &cell ? std::nullopt : ratio_of(&cell, base, kRate);
}

// The speed-up by how many times the hardware of serial_of() a cell has.
std::optional<double> efficiency(const Cell& cell) {
  const auto faster = speed_up(cell);
  if (!faster) return std::nullopt;
  const Cell& base = *serial_of(cell);
  const bool on_cores = cell.result.cell.on_cores;
  return faster->median / (on_cores ? static_cast<double>(cell.cores) / base.cores
                                    : static_cast<double>(cell.places) / base.places);
}

template <class Coordinate>
bool has_several(const Cells& cells, Coordinate coordinate) {
  return std::ranges::any_of(
      cells, [&](const Cell& cell) { return cell.*coordinate != cells.front().*coordinate; });
}

// Names a cell for people, with what not all cells have in common.
std::string label(const Cell& cell) {
  return concat(cell.name(),
      has_several(*cell.cells, &Cell::batch) ? concat(", batch ", cell.batch) : "",
      has_several(*cell.cells, &Cell::precision) ? ", precision " + cell.precision : "");
}

/// The cells that the answer is about: of those that have a number and cores of their own.
struct Best {
  const Cell* first = nullptr;           ///< the fastest; nullptr: no cell has a number
  const Cell* second = nullptr;          ///< the next; nullptr: there is none
  std::vector<const Cell*> equals = {};  ///< those surely equal to the first, see verdict.h
  /// Of the first and its equals the one to use: with the fewest cores, of these the simplest.
  const Cell* taken = nullptr;
};

std::ptrdiff_t complexity(const Cell& cell) {
  return std::find(std::begin(kFromSimple), std::end(kFromSimple), cell.way) - kFromSimple;
}

// What decides among equals, in this order.
auto costs(const Cell& cell) {
  return std::make_tuple(cell.cores, complexity(cell), cell.precision != "32");
}

Best best_of(const Cells& cells) {
  const auto results = results_of(cells);
  const auto first = largest(results, kRate);
  if (!first) return {};
  Best best{.first = &cells[*first], .taken = &cells[*first]};
  if (const auto second = largest(results, kRate, first)) best.second = &cells[*second];
  for (const Cell& cell : cells) {
    const bool is_other = cell.is_fair() && &cell != best.first;
    if (is_other && surely_equal(ratio_of(best.first, &cell, kRate))) best.equals.push_back(&cell);
  }
  for (const Cell* cell : best.equals)
    if (costs(*cell) < costs(*best.taken)) best.taken = cell;
  return best;
}

// What is concluded: which way is the fastest, how sure that is, what limits it, and how it is
// trained.

std::string advantage(const Cell& taken, const Cell& first) {
  if (taken.cores < first.cores)
    return taken.result.cell.on_cores ? "it takes fewer cores" : "it takes fewer devices";
  if (complexity(taken) == complexity(first)) return "it needs no mixed precision";
  if (taken.way == "serial") return "it needs no spreading";
  return taken.way == "dp" ? "it is one process" : "it is the simpler way";
}

// Names the fastest cell's equals and says which to take, and why.
std::string equals_text(const Best& best) {
  if (best.equals.empty()) return "";
  std::vector<std::string> names;
  for (const Cell* cell : best.equals) names.push_back(label(*cell));
  const std::string advice =
      best.taken == best.first
          ? "None of them is simpler: take the fastest."
          : concat("Take ", label(*best.taken), ": ", advantage(*best.taken, *best.first), ".");
  return concat("Practically as fast (", equal_text(), "): ", joined(names, "; "), ". ", advice);
}

std::string rate_text(const Cell& first) {
  const auto faster = speed_up(first);
  const std::string rate =
      concat("Fastest: ", label(first), ", ", seconds_text(*first.median(kRate)), " images/s");
  if (!faster) return rate + ".";
  return concat(
      rate, ", ", with_interval(*faster), " times as fast as ", label(*serial_of(first)), ".");
}

std::string sureness_text(const Best& best) {
  if (best.second == nullptr) return "No other cell has a number to compare it with.";
  const auto ratio = ratio_of(best.first, best.second, kRate);
  const std::string next = label(*best.second);
  if (!ratio) return concat("No round has both it and the next, ", next, ".");
  return concat("It is ", with_interval(*ratio), " times as fast as the next, ", next, ": ",
      surely_equal(ratio) ? equal_text() : verdict_on(*ratio, "faster", "slower"), ".");
}

// Without the flags that only a measurement needs.
Words without_bench_flags(const Words& command) {
  const std::vector<std::string> ours{"--max-steps", "--log-interval", "--val-interval",
      "--snapshot-interval", "--progress", "--max-restarts"};
  Words words;
  for (std::size_t i = 0; i < command.size(); ++i) {
    const bool is_ours = std::ranges::find(ours, command[i]) != ours.end();
    const bool is_mock = command[i] == "--data" && command[i + 1] == kUsualWaysData;
    if (is_ours || is_mock) {
      ++i;
    } else {
      words.push_back(command[i]);
    }
  }
  return words;
}

std::string command_text(const Cell& cell) {
  const StudyCell& what = cell.result.cell;
  return concat("Train with: ", joined(what.environment, " "), " lockstep ",
      shell_text(without_bench_flags(what.command)));
}

std::string hint(double data, double comm) {
  if (data >= kMuch) return " More --workers may help.";
  return comm >= kMuch ? " A larger batch needs less of that for each image." : "";
}

// As far as the records of the runs tell.
std::string limits_text(const Cell& cell) {
  const auto data = cell.median(kDataShare), comm = cell.median(kCommShare);
  if (!data) return "";
  return concat("Of the fastest's time ", percent_text(*data), " was waiting for data",
      comm ? concat(" and ", percent_text(*comm), " for other ranks in backward") : "", ".",
      cell.way == "serial" || cell.way == "ddp"
          ? ""
          : " What its places wait for each other is not recorded.",
      hint(*data, comm.value_or(0)));
}

std::string efficiency_text(const Cell& cell) {
  const auto share = efficiency(cell);
  if (!share) return "";
  return concat("It makes ", percent_text(*share), " of what ",
      cell.result.cell.on_cores ? "its cores" : "its devices", " would at the rate of ",
      label(*serial_of(cell)), ".");
}

std::string not_measured(const Cells& cells) {
  std::vector<std::string> names;
  for (const Cell& cell : cells) {
    if (cell.result.samples.empty() && cell.result.cell.not_measurable.empty())
      names.push_back(label(cell));
  }
  if (names.empty()) return "";
  return concat("Not measured in the time that there was: ", joined(names, "; "),
      ". The same command with --output goes on.");
}

// One line for each reason.
std::vector<std::string> left_out(const Cells& cells) {
  std::map<std::string, std::vector<std::string>> by_reason;
  for (const Cell& cell : cells) {
    const std::string& reason = cell.result.cell.not_measurable;
    if (!reason.empty()) by_reason[reason].push_back(label(cell));
  }
  std::vector<std::string> lines;
  for (const auto& [reason, names] : by_reason)
    lines.push_back(concat("Left out: ", joined(names, "; "), ": ", reason));
  return lines;
}

std::string about_rounds(const Cells& cells, const Best& best) {
  const int most = best.first->estimate(kRate)->count;
  const auto fewer = std::ranges::count_if(cells, [&](const Cell& cell) {
    const auto rate = cell.estimate(kRate);
    return cell.is_fair() && rate && rate->count < most;
  });
  if (fewer == 0) return "";
  return concat("Cells that had become clearly slower", best.equals.empty() ? "" : ", or equal,",
      " were left out of later rounds: ", fewer, " of ", cells.size(), ".");
}

std::string about_sureness(const Best& best) {
  Verdict verdict;
  if (best.second != nullptr) verdict.add(ratio_of(best.first, best.second, kRate));
  if (best.equals.empty()) return verdict.explained();
  return in_one({verdict.explained(), equal_explained()});
}

page::Conclusion conclusion(const Cells& cells) {
  const Best best = best_of(cells);
  std::vector<std::string> remarks = left_out(cells);
  remarks.push_back(not_measured(cells));
  remarks.push_back(about_crowd(cells, &Cell::places, "places"));
  if (best.first == nullptr)
    return {.answer = "No cell has a number and cores of its own.", .remarks = remarks};
  remarks.insert(remarks.begin(),
      {command_text(*best.taken), limits_text(*best.first), efficiency_text(*best.first),
          about_sureness(best), about_rounds(cells, best)});
  remarks.push_back(about_missing(results_of(cells)));
  return {.answer = in_one({rate_text(*best.first), sureness_text(best), equals_text(best)}),
      .remarks = remarks};
}

// Tables and a figure.

int rounds_of(const Cell& cell) {
  const auto rate = cell.estimate(kRate);
  return rate ? rate->count : 0;
}

std::string note_of(const Cell& cell) {
  const bool is_base = serial_of(cell) == &cell && cell.result.reason.empty();
  return noted({cell_note(cell.result, kRate), is_base ? "the others are compared with it" : ""});
}

TableOf<Cell> table_of(const char* what, const char* title) {
  TableOf<Cell> table(std::string("ways-") + what, title);
  return table.name("way", &Cell::name)
      .number("cores", &Cell::cores)
      .number("batch", &Cell::batch)
      .name("precision", &Cell::precision);
}

std::vector<page::Table> tables(const Cells& cells) {
  return {table_of("rates", "Images a second")
              .estimate("images/s", "interval", kRate)
              .number("rounds", rounds_of)
              .estimate("speed-up", "interval", speed_up, ratio_text)
              .number("efficiency", efficiency, percent_text)
              .name("note", note_of)
              .notes({"batch is that of all places together, so that all ways train alike; one "
                      "place is serial, dp, ddp, mp and pp begin at two, ddp+mp and ddp+pp at four",
                  concat("speed-up: over one process with the fewest cores, of the same batch and "
                         "precision; efficiency: speed-up by how many times its ",
                      cells.front().result.cell.on_cores ? "cores" : "devices", " the cell has"),
                  oversubscribed_note(any_oversubscribed(cells))})
              .notes(whole_reasons(results_of(cells)))
              .of(cells),
      table_of("costs", "What steps waited for, and memory")
          .number("waited for data", kDataShare, percent_text)
          .number("for ranks", kCommShare, percent_text)
          .number("peak [MiB]", kPeakMemory, mebibytes_text)
          .note(kRate)
          .notes({"shares of the time of a step; only ddp records how long backward waited for "
                  "other ranks; peak: memory of all processes, summed"})
          .of(cells)};
}

std::vector<plot::Figure> figures(const Cells& cells) {
  const auto category = [](const Cell& cell) {
    return concat(label(cell), oversubscribed_mark(cell.result));
  };
  const auto shown = select(cells, [](const Cell& cell) { return cell.result.reason.empty(); });
  if (shown.empty()) return {};
  return {BarsOf<Cell>("ways-rate", "Images a second, each way", "way", "images/s", category)
              .bars("images/s", kRate)
              .of(shown, medians_note(most_rounds(cells, kRate)))};
}

std::string title_of(const StudyOptions& options) {
  const std::string data = options.data.empty() ? "" : " on " + data_name(options.data.back());
  const std::string flags = joined(options.ways.train_flags, " ");
  return concat(
      "Ways: ", options.ways.model, data, flags.empty() ? "" : concat(", trained with ", flags));
}

}  // namespace

std::string Point::name() const {
  if (way == "serial") return concat("one process on ", cores, cores == 1 ? " core" : " cores");
  const std::string what = schedule.empty() ? way : concat(way, " ", schedule);
  const std::string how =
      is_composed(way) ? concat(" (", replicas(), " x ", stages, " stages)") : "";
  return concat(what, " on ", places, " places", how);
}

Study make_study(const StudyOptions& options) {
  Study study = StudyOf<Point>{.name = "ways",
      .title = title_of(options),
      .question = "Which way of spreading is the fastest for this model on this machine?",
      .rounds = options.rounds_or(kMostRounds),
      .limit_seconds = kLimit,
      .grid = grid(options),
      .cell = [options](const Point& point) { return cell_of(point, options); },
      .values =
          [images = options.ways.images](const Point& point, const fs::path& run) {
            return values_of(point, run, run_length(images, point.batch).steps_a_line);
          },
      .conclusion = conclusion,
      .tables = tables,
      .figures = figures,
      .sample_columns = {{kRate, "images/s"}, {kDataShare, "waited for data"}}}
                    .make();
  study.begins_in_order = true;
  if (options.rounds == 0) {
    study.worth = [](std::span<const CellResult> results) { return contenders(results, kRate); };
  }
  return study;
}

RunLength run_length(std::int64_t images, int batch) {
  const std::int64_t steps_a_line = std::max<std::int64_t>(1, images / (kLines * batch));
  return {.steps = kLines * steps_a_line, .steps_a_line = steps_a_line};
}

void explore(StudyOptions& options, const CellPaths& paths) {
  Trials trials(paths, "ways");
  const std::vector<Point> points = grid(options);
  say(concat("asking lockstep train about ", points.size(), " cells"));
  std::optional<Point> first;
  for (const Point& point : points) {
    const StudyCell cell = cell_of(point, options);
    const std::string reason = refusal_of(trials, cell);
    if (reason.empty()) {
      if (!first) first = point;
    } else {
      options.ways.refused[cell.id] = reason;
      say(concat("left out: ", cell.id, ": ", reason));
    }
  }
  check(first.has_value(),
      "bench: no cell can be trained: ", first ? "" : options.ways.refused.begin()->second);
  const StudyCell probe =
      cell_with(*first, options, words_of("--max-time", kProbeTime, "--log-interval", 1));
  say(concat("measuring how long a run should be: ", probe.id));
  options.ways.images = images_at(trials, probe);
}

SampleValues values_of(const Point& point, const fs::path& run, std::int64_t warm_up) {
  TimedSteps timed;
  std::int64_t done = 0;
  for (const TimedSteps& line : read_steps(run / "metrics.jsonl")) {
    if (done >= warm_up) timed += line;
    done += line.count;
  }
  if (timed.count == 0)
    throw DataError(concat((run / "metrics.jsonl").string(), ": has no steps after the first ",
        warm_up, ", which warm up"));
  SampleValues values{{kRate, timed.samples / timed.seconds},
      {kDataShare, timed.data_seconds / timed.seconds},
      {"timed_steps", static_cast<double>(timed.count)}};
  if (point.way == "ddp") values[kCommShare] = timed.comm_seconds / timed.seconds;
  if (const auto memory = read_run_summary(run).peak_memory_bytes)
    values[kPeakMemory] = static_cast<double>(*memory);
  return values;
}

}  // namespace lockstep::bench::ways
