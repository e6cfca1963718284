#include "bench/studies/pipeline.h"

#include <algorithm>
#include <cmath>
#include <optional>

#include "bench/study/verdict.h"
#include "lockstep/core/error.h"
#include "lockstep/parallel/schedule/timetable.h"
#include "lockstep/record/metrics_reader.h"

namespace lockstep::bench::pipeline {
namespace {

using plot::Figure;
using plot::Series;
using Cell = Measured<Point>;
using Cells = std::vector<Cell>;
using Pointers = std::vector<const Cell*>;
using Style = Series::Style;

constexpr const char* kModelParallel = "mp";
constexpr const char* kStudysSchedule = "gpipe";  // all forwards, then all backwards
constexpr const char* kSchedules[] = {kStudysSchedule, "1f1b", "interleaved", "zero-bubble"};

constexpr const char* kRunSeconds = "run_seconds";    // mean over the repeats
constexpr const char* kRunVariance = "run_variance";  // of the repeats, in seconds squared
constexpr const char* kRunRepeats = "repeats";
constexpr const char* kPeakMemory = "peak_memory_bytes";

constexpr int kRunBatches = 3;  // that make a run, in the study and here
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

// The split size at which ways are compared: a sixth of the batch, the study's 20 of 120, but at
// least 2.
constexpr int standard_split(int batch) { return batch < 12 ? 2 : batch / 6; }

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

// How cells compare.

// Finds the cell of a way that has one split size, or of a schedule with that one.
const Cell* find_way(const Cells& cells, const std::string& way, int split = 0) {
  return first_where(cells,
      [&](const Cell& cell) { return cell.way == way && (split == 0 || cell.split == split); });
}

/// The study's figures of a cell, over all repeats of all rounds.
struct MeanOfRuns {
  double mean = 0;       ///< seconds
  double deviation = 0;  ///< standard deviation as numpy's std: divided by the number
  int repeats = 0;       ///< 0: none was measured
};

// Samples have the mean and the variance of their own repeats: together they give those of all.
MeanOfRuns mean_of_runs(const Cell& cell) {
  double count = 0, sum = 0, squares = 0;
  for (const Sample& sample : cell.result.samples) {
    if (!sample.worked() || !sample.values.contains(kRunSeconds)) continue;
    const double mean = sample.values.at(kRunSeconds), repeats = sample.values.at(kRunRepeats);
    count += repeats;
    sum += repeats * mean;
    squares += repeats * (sample.values.at(kRunVariance) + mean * mean);
  }
  if (count <= 0 || !std::isfinite(squares)) return {};
  const double mean = sum / count;
  const double variance = std::max(0.0, squares / count - mean * mean);  // rounding
  return {mean, std::sqrt(variance), static_cast<int>(count)};
}

// How many times as fast as a single place a cell is, or as one with the cores of both.
std::optional<Estimate> over_single(const Cell& cell) {
  return ratio_of(find_way(*cell.cells, kSinglePlace), &cell, kRunSeconds);
}

std::optional<Estimate> over_both(const Cell& cell) {
  return ratio_of(find_way(*cell.cells, kCoresOfBoth), &cell, kRunSeconds);
}

// How many times as fast a pipeline is as a single place that has the same micro-batches.
std::optional<Estimate> over_micro_batches(const Cell& cell) {
  if (!cell.is_cut()) return std::nullopt;
  return ratio_of(find_way(*cell.cells, kMicroBatches, cell.split), &cell, kRunSeconds);
}

std::optional<Estimate> memory_over_single(const Cell& cell) {
  return ratio_of(&cell, find_way(*cell.cells, kSinglePlace), kPeakMemory);
}

double bound_over_single(const Cell& cell) { return bound_of(cell).speed_up; }

// A run's seconds by those of a single place and the bound of the speed-up.
std::optional<double> predicted_seconds(const Cell& cell) {
  const Cell* single = find_way(*cell.cells, kSinglePlace);
  if (single == nullptr || cell.way == kSinglePlace) return std::nullopt;
  const auto seconds = single->median(kRunSeconds);
  if (!seconds) return std::nullopt;
  if (!cell.is_cut()) return *seconds / bound_over_single(cell);
  const bool piped = cell.way != kModelParallel;
  const plan::Way way{.stages = kPlaces,
      .schedule = piped ? schedule_kind(cell.way) : ScheduleKind::kSequential,
      .micro_batches = piped ? cell.chunks() : 1};
  return predicted_step({.batch = static_cast<double>(cell.chunks()), .seconds = *seconds},
      {.places = kPlaces}, way, cell.chunks());
}

// What is concluded: how much of a cut's cost a pipeline wins back, and whether the cut pays.

Pointers fair_pipelines(const Cells& cells) {
  return select(cells, [&](const Cell& cell) {
    return cell.is_cut() && cell.chunks() > 1 && cell.is_fair() && over_single(cell);
  });
}

Pointers fair_pipelines_of_the_study(const Cells& cells) {
  auto piped = fair_pipelines(cells);
  std::erase_if(piped, [](const Cell* cell) { return cell->way != kStudysSchedule; });
  return piped;
}

const Cell* fastest(const Pointers& cells) {
  const auto found = std::ranges::min_element(cells,
      [](const Cell* a, const Cell* b) { return a->median(kRunSeconds) < b->median(kRunSeconds); });
  return found == cells.end() ? nullptr : *found;
}

std::string about_model_parallel(const Cells& cells) {
  const Cell* mp = find_way(cells, kModelParallel);
  const Cell* single = find_way(cells, kSinglePlace);
  const bool both = mp != nullptr && single != nullptr && mp->is_fair() && single->is_fair();
  const auto ratio = both ? ratio_of(mp, single, kRunSeconds) : std::nullopt;
  if (!ratio) return "Model parallel cannot be compared with a single place.";
  return concat("Model parallel, in which one place always waits, takes ", with_interval(*ratio),
      " times as long as a single place: ", verdict_on(*ratio, "longer", "shorter"), ".");
}

// What small micro-batches cost is not the fault of the pipeline.
std::string about_micro_batches(const Cells& cells) {
  const Cell* best = fastest(fair_pipelines_of_the_study(cells));
  const auto faster = best == nullptr ? std::nullopt : over_micro_batches(*best);
  if (!faster) return "";
  return concat("The best of the study's pipelines is ", with_interval(*faster),
      " times as fast as a single place that has the same micro-batches of ", best->split, ": ",
      percent_text(faster->median / bound_over_single(*best)), " of its bound.");
}

std::string about_splits(const Cells& cells) {
  const auto piped = fair_pipelines_of_the_study(cells);
  const Cell* best = fastest(piped);
  if (best == nullptr) return "The study's pipeline cannot be compared with a single place.";
  const auto faster = over_single(*best);
  const double bound = bound_over_single(*best);
  return concat("Pipelined as in the study (", kStudysSchedule, "), the best of ", piped.size(),
      piped.size() == 1 ? " split size is " : " split sizes is ", best->split, ", ", best->chunks(),
      " micro-batches: ", with_interval(*faster), " times as fast as a single place, ",
      verdict_on(*faster, "faster", "slower"), "; that is ", percent_text(faster->median / bound),
      " of the ", ratio_text(bound), " that its bubble allows.");
}

std::string about_memory(const Cell& best, const Cell& gpipe) {
  const auto ratio = ratio_of(&best, &gpipe, kPeakMemory);
  const auto alone = memory_over_single(best);
  if (!ratio || !alone) return "";
  return concat(best.name(), " takes ", with_interval(*ratio),
      " times the memory of gpipe, both places together ", with_interval(*alone),
      " times that of a single place.");
}

std::string about_schedules(const Cells& cells) {
  const int split = standard_split(cells.front().batch);
  auto piped = fair_pipelines(cells);
  std::erase_if(piped, [&](const Cell* cell) { return cell->split != split; });
  const Cell* gpipe = find_way(cells, kStudysSchedule, split);
  const Cell* best = fastest(piped);
  if (best == nullptr || piped.size() < 2) return "";
  const std::string name = concat("Of ", piped.size(), " schedules at split size ", split, " ",
      best->name(), " is the fastest");
  const auto ratio = best == gpipe ? std::nullopt : ratio_of(gpipe, best, kRunSeconds);
  if (!ratio) return name + ".";
  return concat(name, ", ", with_interval(*ratio),
      " times as fast as gpipe: ", verdict_on(*ratio, "faster", "slower"), ". ",
      about_memory(*best, *gpipe));
}

std::string about_cores_of_both(const Cells& cells) {
  const Cell* best = fastest(fair_pipelines(cells));
  const auto ratio = ratio_of(best, find_way(cells, kCoresOfBoth), kRunSeconds);
  if (!ratio) return "";
  const char* advice = above_one(ratio)   ? ": cut a net for memory, not for time."
                       : below_one(ratio) ? ": the cut pays."
                                          : ".";
  return concat("The fastest pipeline of all (", best->name(), ", split size ", best->split,
      ") takes ", with_interval(*ratio), " times as long as one place with the cores of both, ",
      verdict_on(*ratio, "longer", "shorter"), advice);
}

std::string how_sure(const Cells& cells) {
  const Cell* single = find_way(cells, kSinglePlace);
  Verdict verdict;
  if (single != nullptr) verdict.add(single->estimate(kRunSeconds));
  const char* chance = "Of many cells some lie on the wrong side by chance.";
  return in_one({verdict.explained(), verdict.has_intervals() ? chance : ""});
}

std::string about_two_places(const Cells& cells) {
  if (any_oversubscribed(cells)) return about_oversubscribed("Two places");
  const Cell* single = find_way(cells, kSinglePlace);
  const int cores = single == nullptr ? 1 : single->result.cell.cores;
  return concat("A place is ", cores, cores == 1 ? " core" : " cores",
      " here; places of one processor share its caches, its memory and its clock, which two GPUs "
      "do not.");
}

std::string about_batch(const Cells& cells) {
  const int batch = cells.front().batch;
  if (batch == kStudyBatch) return "";
  return concat("The batch is ", batch, ", the study's ", kStudyBatch,
      ": its micro-batches are larger for the same number of them.");
}

page::Conclusion conclusion(const Cells& cells) {
  return {.answer = in_one({about_splits(cells), about_cores_of_both(cells)}),
      .remarks = {about_micro_batches(cells), about_model_parallel(cells), about_schedules(cells),
          how_sure(cells), about_two_places(cells), about_batch(cells),
          about_missing(results_of(cells))}};
}

// Tables.

std::string mean_text(const Cell& cell) {
  const MeanOfRuns runs = mean_of_runs(cell);
  if (runs.repeats == 0) return kNone;
  const std::string mean = seconds_text(runs.mean);
  return runs.repeats < 2 ? mean : concat(mean, " \u00b1 ", seconds_text(runs.deviation));
}

std::string time_note(const Cell& cell) {
  const bool is_base = cell.way == kSinglePlace;
  return noted({cell_note(cell.result, kRunSeconds),
      is_base && cell.result.reason.empty() ? "predicts the others" : "",
      !is_base && !predicted_seconds(cell) ? "no single place to predict from" : ""});
}

// What a `-` in the row means, if it is not that the cell has no number.
std::string ratio_note(const Cell& cell) {
  std::vector<std::string> parts{cell_note(cell.result, kRunSeconds)};
  for (const char* way : {kSinglePlace, kCoresOfBoth}) {
    const Cell* base = find_way(*cell.cells, way);
    if (cell.result.reason.empty() && base != nullptr && !base->result.reason.empty())
      parts.push_back(concat(base->name(), ": ", cell_note(base->result, kRunSeconds)));
  }
  return noted(parts);
}

std::string memory_note(const Cell& cell) {
  const bool lacks = cell.result.reason.empty() && !cell.estimate(kPeakMemory);
  return noted({ratio_note(cell), lacks ? "the run did not report its memory" : ""});
}

std::string images_kept(const Cell& cell) {
  std::string text;
  for (const int each : bound_of(cell).live_images) text += concat(text.empty() ? "" : " / ", each);
  return text;
}

std::string batch_note(const Cells& cells) {
  const int batch = cells.front().batch;
  const std::string smaller =
      batch == kStudyBatch ? "" : concat("; smaller batch than the study's ", kStudyBatch);
  return concat("a run is ", kRunBatches, " batches of ", batch,
      " images, 128 x 128, ResNet50 of 1000 classes, SGD", smaller,
      "; split: images of a micro-batch");
}

TableOf<Cell> table_of(const char* what, const char* title) {
  TableOf<Cell> table(std::string("pipeline-") + what, title);
  return table.name("way", &Cell::name)
      .number("split", &Cell::split)
      .number("chunks", &Cell::chunks);
}

page::Table time_table(const Cells& cells) {
  return table_of("times", "Seconds of a run")
      .number("cores", [](const Cell& cell) { return cell.result.cell.cores; })
      .number("published [s]", [](const Cell&) { return kNone; })
      .number("mean \u00b1 deviation [s]", mean_text)
      .number("repeats", [](const Cell& cell) { return mean_of_runs(cell).repeats; })
      .estimate("median [s]", "interval [s]", kRunSeconds)
      .number("predicted [s]", predicted_seconds)
      .name("note", time_note)
      .notes({batch_note(cells),
          "published: the study shows its times only as pictures, and gives no number",
          "mean and standard deviation as in the study, over all repeats and divided by their "
          "number; median and interval over the rounds (- in one round), a process each, after one "
          "step to warm up",
          "predicted: median of the single place / (places x (1 - idle share of the schedule)); "
          "with the cores of both: half",
          oversubscribed_note(any_oversubscribed(cells))})
      .notes(whole_reasons(results_of(cells)))
      .of(cells);
}

template <std::optional<Estimate> (*kFaster)(const Cell&)>
std::optional<double> of_bound(const Cell& cell) {
  return share_of(kFaster(cell), bound_over_single(cell));
}

page::Table speed_up_table(const Cells& cells) {
  return table_of("speed-up", "How many times as fast as a single place")
      .estimate("speed-up", "interval", over_single, ratio_text)
      .number(
          "bubble", [](const Cell& cell) { return bound_of(cell).idle; }, percent_text)
      .number("bound", bound_over_single, ratio_text)
      .number("of the bound", of_bound<over_single>, percent_text)
      .number("by its micro-batches", of_bound<over_micro_batches>, percent_text)
      .number("of both's cores", over_both, ratio_text)
      .name("note", ratio_note)
      .notes({"a single place has half of the cores that the two of a pipeline have; of both's "
              "cores: how many times as fast as a single place with the cores of both",
          "bubble: share of the places' time that the schedule leaves idle if all stages take as "
          "long and a backward takes two forwards: of 2 places and m micro-batches 1/2 one after "
          "the other, 1/(m+1) of gpipe and 1f1b; if m is even 1/(2m+1) of interleaved and "
          "1/(3m+1) of zero-bubble; bound: 2 (1 - bubble)",
          "by its micro-batches: of the bound, compared with a single place that has the same "
          "micro-batches; - where nothing is piped",
          "the cut is the study's, after layer2, which gives 44 % of the multiplications to the "
          "first stage; interleaved has 2 stages in each place",
          "interval: - in one round", oversubscribed_note(any_oversubscribed(cells))})
      .of(select(cells, [](const Cell& cell) { return cell.way != kSinglePlace; }));
}

page::Table memory_table(const Cells& cells) {
  return table_of("memory", "Peak memory")
      .estimate("peak [MiB]", "interval [MiB]", kPeakMemory, mebibytes_text)
      .number("of single", memory_over_single, ratio_text)
      .number("images kept", images_kept)
      .name("note", memory_note)
      .notes({"the most that the run's one process had resident, places together: LibTorch, "
              "parameters, their gradients, activations",
          "images kept: most whose activations the schedule keeps, in each place (interleaved: of "
          "half a stage); interval: - in one round",
          oversubscribed_note(any_oversubscribed(cells))})
      .of(cells);
}

std::vector<page::Table> tables(const Cells& cells) {
  return {time_table(cells), speed_up_table(cells), memory_table(cells)};
}

// Figures: those of the study, those of the schedules that it lacks, and of peak memory.

int split_of(const Cells& cells) { return standard_split(cells.front().batch); }

std::string run_axis() { return concat("ResNet50, ", kRunBatches, " batches [s]"); }

// Notes for a reader who sees only the picture.
std::string cells_note(const Cells& cells, const std::string& bars) {
  const int batch = cells.front().batch;
  return concat(bars, " Batch ", batch,
      batch == kStudyBatch ? "" : concat(", the study's is ", kStudyBatch), ".",
      any_oversubscribed(cells) ? " Oversubscribed: more places than cores." : "");
}

std::string deviation_note(const Cells& cells) {
  int most = 0;
  for (const Cell& cell : cells) most = std::max(most, mean_of_runs(cell).repeats);
  if (most < 2) return cells_note(cells, "One run each.");
  return cells_note(cells, concat("Means of up to ", most, " runs, with the standard deviation."));
}

// As the study draws them: mean and standard deviation.
std::optional<plot::Point> mean_point(double x, const Cell* cell) {
  const MeanOfRuns runs = cell == nullptr ? MeanOfRuns() : mean_of_runs(*cell);
  if (runs.repeats == 0) return std::nullopt;
  if (runs.repeats < 2) return plot::Point{x, runs.mean};
  return plot::Point{x, runs.mean, runs.mean - runs.deviation, runs.mean + runs.deviation};
}

/// A bar of a figure: a cell, if there is one, and its name.
struct Bar {
  std::string name;
  const Cell* cell;
};

Figure ways_figure(
    const Cells& cells, const std::vector<Bar>& bars, const char* id, const char* title) {
  return BarsOf<Bar>(id, title, "way", run_axis(), &Bar::name)
      .bars("", [](const Bar& bar) { return mean_point(0, bar.cell); })
      .of(bars, deviation_note(cells));
}

Pointers over_splits(const Cells& cells, const std::string& way) {
  return select(cells, [&](const Cell& cell) { return cell.way == way; });
}

Series means_over_splits(const Cells& cells, const std::string& way) {
  return series_of(Point{.way = way}.name(), Style::kLine, over_splits(cells, way),
      [](const Cell* cell) { return mean_point(cell->split, cell); });
}

Series bound_over_splits(const Cells& cells, const std::string& way) {
  return series_of(way + ", bubble bound", Style::kDashed, over_splits(cells, way),
      [&](const Cell* cell) { return point_of(cell->split, predicted_seconds(*cell)); });
}

// What does not depend on the split size, as a line over all of them.
Series level(const Cells& cells, const char* way, const Series& over) {
  const Cell* cell = find_way(cells, way);
  std::vector<double> ends;
  if (over.points.size() > 1) ends = {over.points.front().x, over.points.back().x};
  return series_of(cell == nullptr ? way : cell->name(), Style::kLine, ends,
      [&](double x) { return mean_point(x, cell); });
}

Figure splits_figure(const char* what, const char* title, const std::string& note) {
  return {.id = concat("pipeline-", what),
      .title = title,
      .x = {.label = "pipeline split size [images]"},
      .y = {.label = run_axis()},
      .series = {},
      .note = note};
}

Figure tradeoff_figure(const Cells& cells) {
  Figure figure = splits_figure("split-size-tradeoff", "Pipelined over the split size",
      deviation_note(cells) + " Without marks: what the bubble allows.");
  const Series piped = means_over_splits(cells, kStudysSchedule);
  for (const Series& series :
      {piped, bound_over_splits(cells, kStudysSchedule), means_over_splits(cells, kMicroBatches),
          level(cells, kSinglePlace, piped), level(cells, kModelParallel, piped)}) {
    add_if_any(figure, series);
  }
  return figure;
}

Figure schedules_figure(const Cells& cells) {
  const int split = split_of(cells);
  Pointers shown{find_way(cells, kModelParallel)};
  for (const char* way : kSchedules) shown.push_back(find_way(cells, way, split));
  std::erase(shown, nullptr);
  return BarsOf<Cell>("pipeline-schedules",
      concat("The schedules at split size ", split, ", and their bubble bounds"), "schedule",
      "times as fast as a single place", &Cell::name)
      .bars("here", over_single)
      .bars("bubble bound", [](const Cell& cell) { return std::optional(bound_over_single(cell)); })
      .of(shown, cells_note(cells, "Ratios of medians; whiskers are intervals over the rounds."));
}

Figure schedules_over_splits_figure(const Cells& cells) {
  Figure figure = splits_figure("schedules-over-splits",
      "The schedules over the split size, and their bubble bounds",
      deviation_note(cells) + " Without marks: what the bubbles allow; 1f1b's is gpipe's.");
  for (const char* way : kSchedules) add_if_any(figure, means_over_splits(cells, way));
  for (const std::string way : kSchedules) {
    if (way != "1f1b") add_if_any(figure, bound_over_splits(cells, way));
  }
  return figure;
}

Figure memory_figure(const Cells& cells) {
  const int split = split_of(cells);
  const auto shown =
      select(cells, [&](const Cell& cell) { return cell.chunks() == 1 || cell.split == split; });
  return BarsOf<Cell>("pipeline-memory", concat("Peak memory, schedules at split size ", split),
      "way", "peak memory of the process [MiB]", &Cell::name)
      .bars("", kPeakMemory, 1.0 / (1 << 20))
      .of(shown, cells_note(cells, "Medians; whiskers are intervals over the rounds."));
}

std::vector<Figure> figures(const Cells& cells) {
  const int split = split_of(cells);
  const std::vector<Bar> unpiped{{"Model Parallel", find_way(cells, kModelParallel)},
      {"Single Place", find_way(cells, kSinglePlace)},
      {"Single, Cores of Both", find_way(cells, kCoresOfBoth)}};
  std::vector<Bar> with_pipeline = unpiped;
  with_pipeline.insert(
      with_pipeline.begin() + 2, {concat("Pipelining Model Parallel (split ", split, ")"),
                                     find_way(cells, kStudysSchedule, split)});
  std::vector<Figure> all{
      ways_figure(cells, unpiped, "pipeline-mp-vs-rn", "Model parallel against a single place"),
      ways_figure(cells, with_pipeline, "pipeline-mp-vs-rn-vs-pp",
          "Model parallel, a single place, and pipelined"),
      tradeoff_figure(cells), schedules_figure(cells)};
  const auto is_of_another_split = [&](const Cell& cell) {
    return cell.way == kSchedules[1] && cell.split != split;
  };
  if (first_where(cells, is_of_another_split) != nullptr)
    all.push_back(schedules_over_splits_figure(cells));
  all.push_back(memory_figure(cells));
  return all;
}

}  // namespace

std::string Point::name() const {
  if (way == kSinglePlace) return "single place";
  if (way == kCoresOfBoth) return "single, cores of both";
  if (way == kMicroBatches) return "single, micro-batches";
  return way == kModelParallel ? "model parallel" : way;
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

SampleValues values_of(const std::filesystem::path& run, int batches) {
  const auto file = run / "metrics.jsonl";
  const auto runs = run_seconds(step_seconds(file), static_cast<std::size_t>(batches));
  if (runs.empty())
    throw DataError(concat(file.string(), ": has fewer than ", 1 + batches, " steps"));
  const auto count = static_cast<double>(runs.size());
  double mean = 0, variance = 0;
  for (const double seconds : runs) mean += seconds / count;
  for (const double seconds : runs) variance += (seconds - mean) * (seconds - mean) / count;
  return {{kRunSeconds, mean}, {kRunVariance, variance}, {kRunRepeats, count},
      {kPeakMemory, or_nan(read_run_summary(run).peak_memory_bytes)}};
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

}  // namespace lockstep::bench::pipeline
