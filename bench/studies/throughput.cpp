#include "bench/studies/throughput.h"

#include <algorithm>
#include <cmath>
#include <optional>

#include "bench/study/verdict.h"
#include "lockstep/core/error.h"
#include "lockstep/core/text.h"

namespace lockstep::bench::throughput {
namespace {

using Cell = Measured<Point>;
using Cells = std::vector<Cell>;

constexpr const char* kSecondsASample = "seconds_a_sample";
constexpr int kBatchFactor = 4;  // how many times the first batch the second is
constexpr int kMostPlaces = 4;   // the study's
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

// What the study's notebook printed: seconds, rounded to a microsecond, and their ratios.
constexpr double kPublishedSerial = 0.003333;
constexpr double kPublishedSameBatch = 0.003343;
constexpr double kPublishedLargeBatch = 0.001232;
constexpr double kPublishedHalf = 0.000990;

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

// How cells compare.

// The one place that all ways begin from, at the image's size; nullptr if there is none.
const Cell* one_place(const Cell& cell, int image_size) {
  return first_where(*cell.cells,
      [&](const Cell& each) { return each.way == "serial" && each.image_size == image_size; });
}

const Cell* one_place(const Cell& cell) { return one_place(cell, cell.image_size); }

// The cell of the same places, batch and size that goes this way in this precision.
const Cell* beside(const Cell& cell, const std::string& way, const std::string& precision) {
  return first_where(*cell.cells, [&](const Cell& each) {
    return each.way == way && each.places == cell.places && each.batch == cell.batch &&
           each.precision == precision && each.image_size == cell.image_size;
  });
}

const Cell* ddp_of(const Cell& dp) { return beside(dp, "ddp", dp.precision); }

// From one place's time by linear scaling with the cores. Nothing for half precision, whose gain no
// other cell shows.
std::optional<double> predicted_seconds(const Cell& cell) {
  const Cell* one = one_place(cell);
  if (one == nullptr || cell.is_half() || cell.way == "serial") return std::nullopt;
  const auto seconds = one->median(kSecondsASample);
  if (!seconds) return std::nullopt;
  // A place has as many cores in every cell.
  const auto places = static_cast<int>(cell.result.cell.cores / one->result.cell.cores);
  const plan::WholeStep step{
      .batch = static_cast<double>(one->batch), .seconds = *seconds * one->batch};
  const plan::Way way{.replicas = places,
      .replication =
          cell.way == "dp" ? plan::Replication::kThreads : plan::Replication::kProcesses};
  return predicted_step(step, {.places = places}, way, cell.batch) / cell.batch;
}

std::optional<double> published_seconds(const Cell& cell) {
  const Cell* one = one_place(cell, kStudyImageSize);
  if (one == nullptr || !cell.has_study_size() || cell.way == "ddp") return std::nullopt;
  if (cell.way == "serial") return kPublishedSerial;
  if (cell.is_half()) return kPublishedHalf;
  return cell.batch == one->batch ? kPublishedSameBatch : kPublishedLargeBatch;
}

/// One of the study's ratios of seconds a sample: how many times as fast `cell` is as `base`.
struct Ratio {
  const Cell* base;
  const Cell* cell;
  std::optional<Estimate> measured = ratio_of(base, cell, kSecondsASample);

  bool has_same_batch() const { return base->batch == cell->batch; }

  /// Names both sides: `one place / dp, 4 times the batch`.
  std::string name() const {
    const std::string batch =
        has_same_batch() ? ", same batch" : concat(", ", kBatchFactor, " times the batch");
    const std::string text = cell->is_half() ? concat(cell->way, " in float32 / ", cell->precision)
                                             : concat("one place / ", cell->way, batch);
    return cell->has_study_size() ? text : concat(text, ", ", cell->image_size, " px");
  }

  /// Returns what linear scaling predicts; nothing for half precision.
  std::optional<double> predicted() const {
    if (cell->is_half()) return std::nullopt;
    return static_cast<double>(cell->result.cell.cores) / base->result.cell.cores;
  }

  std::optional<double> published() const {
    if (cell->way != "dp") return std::nullopt;
    return cell->is_half() ? 1.24 : has_same_batch() ? 0.997 : 2.70;
  }

  /// True if both have a number and cores of their own.
  bool is_fair() const { return base->is_fair() && cell->is_fair() && measured.has_value(); }
};

using Ratios = std::vector<Ratio>;

// Those that the cells have, dp's before ddp's; each in the study's order.
Ratios ratios(const Cells& cells) {
  Ratios all;
  for (const char* way : {"dp", "ddp"}) {
    for (const Cell& cell : cells) {
      if (cell.way != way) continue;
      const Cell* base = cell.is_half() ? beside(cell, way, "32") : one_place(cell);
      if (base != nullptr) all.push_back({base, &cell});
    }
  }
  return all;
}

// What is concluded: whether spreading, a larger batch or half precision make a sample cheaper.

// `1.71 times as fast (1.62 to 1.80, surely faster)`.
std::string times_text(const Estimate& ratio) {
  const std::string times = concat(ratio_text(ratio.median), " times as fast");
  if (ratio.count < 2) return times;
  return concat(
      times, " (", interval_text(ratio), ", ", verdict_on(ratio, "faster", "slower"), ")");
}

std::string batch_text(const Ratio& ratio) {
  if (ratio.has_same_batch()) return concat("with the same batch of ", ratio.cell->batch);
  return concat("with ", kBatchFactor, " times that, ", ratio.cell->batch, ",");
}

std::string about_way(const Ratios& fair, const std::string& way) {
  std::vector<std::string> parts;
  int places = 0;
  for (const Ratio& ratio : fair) {
    if (ratio.cell->way != way || ratio.cell->is_half()) continue;
    places = ratio.cell->places;
    parts.push_back(concat(batch_text(ratio), " it is ", times_text(*ratio.measured)));
  }
  if (parts.empty())
    return way + ": no cell has a number, beside one place's, and cores of its own.";
  return concat(way, " on ", places,
      " places against one place, in seconds a sample: ", joined(parts, "; "), ".");
}

Verdict verdict_of(const Ratios& ratios) {
  Verdict verdict;
  for (const Ratio& ratio : ratios) verdict.add(ratio.measured);
  return verdict;
}

std::string precisions_where(
    const Ratios& halves, bool (*holds)(const std::optional<Estimate>& ratio)) {
  std::vector<std::string> names;
  for (const Ratio& ratio : halves)
    if (holds(ratio.measured)) names.push_back(ratio.cell->precision);
  return joined(names);
}

std::string half_verdict(const Ratios& halves) {
  const Verdict verdict = verdict_of(halves);
  const auto all = static_cast<int>(halves.size());
  if (all == 0) return "";
  if (verdict.below == all) return "Half precision does not pay here.";
  if (verdict.above == all) return "Half precision pays here.";
  if (verdict.is_divided() && verdict.above + verdict.below == all)
    return concat("Half precision pays in ", precisions_where(halves, above_one), ", not in ",
        precisions_where(halves, below_one), ".");
  return "Whether half precision pays is not clear.";
}

std::string half_text(const Ratios& halves) {
  std::vector<std::string> parts;
  for (const Ratio& ratio : halves) {
    const Cell& cell = *ratio.cell;
    const std::string size =
        cell.has_study_size() ? ""
                              : concat(" on images of ", cell.image_size, " x ", cell.image_size);
    parts.push_back(
        concat(cell.way, " in ", cell.precision, size, " ", times_text(*ratio.measured)));
  }
  if (parts.empty()) return "Half precision has no number.";
  return concat("Half precision against float32: ", joined(parts), ".");
}

std::string choice_of_way(const Cells& cells) {
  const Verdict verdict = verdict_of_fair(cells, [&](const Cell& cell) {
    const Cell* ddp = ddp_of(cell);
    const bool both = cell.way == "dp" && ddp != nullptr && ddp->is_fair();
    return both ? ratio_of(&cell, ddp, kSecondsASample) : std::nullopt;
  });
  if (verdict.ratios.empty()) return "";
  const std::string took =
      concat("A sample takes with dp ", range_text(verdict.ratios), " times as long as with ddp");
  if (verdict.is_above()) return took + ": take ddp.";
  if (verdict.is_below()) return took + ": take dp.";
  return took +
         (verdict.is_divided() ? ": it depends on the batch." : "; neither is clearly faster.");
}

std::string cheapest_text(const Cells& cells) {
  const Cell* best = nullptr;
  double least = 0;
  for (const Cell& cell : cells) {
    const auto seconds = cell.median(kSecondsASample);
    if (!seconds || !cell.is_fair() || !cell.has_study_size()) continue;
    if (best != nullptr && *seconds >= least) continue;
    best = &cell;
    least = *seconds;
  }
  if (best == nullptr) return "";
  return concat("The least a sample cost: ", milliseconds_text(least), " ms, by ",
      best->way == "serial" ? "one place" : best->way, " with a batch of ", best->batch,
      best->is_half() ? " in " + best->precision : "", ".");
}

// What was smaller than the study's.
std::string about_cuts(const Cells& cells) {
  const Cell& one = cells.front();
  if (one.steps == kFullSteps && one.batch == kFullBatch) return "";
  return concat("Smaller than the study's: batches of ", one.batch, " and ",
      kBatchFactor * one.batch, " instead of 128 and 512, ", one.steps, " steps instead of 5000.");
}

page::Conclusion conclusion(const Cells& cells) {
  Ratios fair = ratios(cells);
  std::erase_if(fair, [](const Ratio& ratio) { return !ratio.is_fair(); });
  Ratios halves = fair;
  std::erase_if(halves, [](const Ratio& ratio) { return !ratio.cell->is_half(); });
  return {.answer = in_one({about_way(fair, "dp"), half_verdict(halves), choice_of_way(cells)}),
      .remarks = {about_way(fair, "ddp"), half_text(halves), cheapest_text(cells),
          verdict_of(fair).explained(), about_places(cells), about_missing(results_of(cells)),
          about_cuts(cells),
          "Published, dp on four V100s: 0.997 with the same batch, 2.70 with the larger one, and "
          "1.24 more in float16: there the larger batch paid, not the places alone."}};
}

// Tables.

std::string note_of(const Cell& cell) {
  const auto seconds = cell.estimate(kSecondsASample);
  const auto skipped = std::lround(cell.median("skipped_steps").value_or(0));
  return noted(
      {cell_note(cell.result, kSecondsASample), seconds && seconds->count < 2 ? "one round" : "",
          skipped > 0 ? concat("overflow left out ", skipped, " of ", cell.steps, " steps") : ""});
}

std::string why_not_predicted(const Cell& cell) {
  if (cell.way == "serial") return "the others are predicted from it";
  if (cell.is_half()) return "no prediction";
  if (one_place(cell) == nullptr) return "not measured on one place";
  return predicted_seconds(cell) ? "" : "one place has no number";
}

std::string why_not_published(const Cell& cell) {
  if (cell.way == "ddp") return "the study has no ddp";
  return cell.has_study_size() ? "" : "the study has no such images";
}

// What the study had and these cells have not.
std::string cuts(const Cells& cells) {
  int steps = cells.front().steps, least = steps;
  for (const Cell& cell : cells) least = std::min(least, cell.steps);
  const std::string range = least == steps ? concat(steps) : concat(least, " to ", steps);
  return concat("here ", range, " steps, the first not timed, and batches from ",
      cells.front().batch, " images on; the study's: 5000 steps, 128 and 512 images");
}

TableOf<Cell> with_coordinates(TableOf<Cell> table) {
  return table.number("places", &Cell::places)
      .number("batch", &Cell::batch)
      .number("a place", &Cell::batch_a_place)
      .name("precision", &Cell::precision)
      .number("image [px]", &Cell::image_size);
}

page::Table cost_table(const Cells& cells) {
  TableOf<Cell> table(
      "throughput-samples-cost", "Milliseconds a sample: here, predicted, published");
  return with_coordinates(table.name("way", &Cell::way))
      .estimate("here [ms]", "interval [ms]", kSecondsASample, milliseconds_text)
      .number("predicted [ms]", predicted_seconds, milliseconds_text)
      .number("published [ms]", published_seconds, milliseconds_text)
      .name("note",
          [](const Cell& cell) {
            return noted({note_of(cell), why_not_predicted(cell), why_not_published(cell)});
          })
      .notes({"batch: images a step on all places; medians over the rounds, intervals as explained "
              "in the conclusion",
          "predicted: one place's time, divided by how many times its cores the cell has: linear "
          "scaling; for half precision there is no prediction; published: Python PyTorch's "
          "DataParallel and apex on four NVIDIA Tesla V100s, batches of 128 and 512, 5000 steps",
          cuts(cells), oversubscribed_note(any_oversubscribed(cells))})
      .notes(whole_reasons(results_of(cells)))
      .of(cells);
}

std::string ratio_note(const Ratio& ratio) {
  const bool measured = ratio.measured.has_value();
  return noted({measured ? note_of(*ratio.cell)
                         : concat("above: ", cell_text(note_of(*ratio.base))),
      measured ? "" : concat("below: ", cell_text(note_of(*ratio.cell))),
      ratio.published() ? "" : "the study has no ddp", ratio.predicted() ? "" : "no prediction"});
}

std::string meaning(const Ratio& ratio) {
  if (!ratio.measured) return "";
  const Verdict verdict{.ratios = {*ratio.measured}};
  return side_of_one(*ratio.measured, verdict.sure("faster"), verdict.sure("slower"));
}

page::Table ratio_table(const Cells& cells) {
  return TableOf<Ratio>("throughput-ratios", "How many times as fast: the study's ratios")
      .name("seconds a sample of", &Ratio::name)
      .estimate("here", "interval", &Ratio::measured, ratio_text)
      .number("predicted", &Ratio::predicted, ratio_text)
      .number("published", &Ratio::published)  // 0.997 is not 1.00
      .name("means", meaning)
      .name("note", ratio_note)
      .notes(
          {"above 1: the one after the slash is faster; predicted: by the number of cores compared "
           "with one place, none for half precision; published for float16: also shown next to "
           "bfloat16, which the study's GPUs lack"})
      .of(ratios(cells));
}

page::Table way_table(const Cells& cells) {
  return dp_beside_ddp(with_coordinates({"throughput-dp-or-ddp", kDpOrDdp}), "ms", kSecondsASample,
      milliseconds_text, ddp_of, note_of)
      .notes(
          {"milliseconds a sample; one is faster where the whole interval lies on its side of 1"})
      .of(select(cells, [&](const Cell& dp) { return dp.way == "dp" && ddp_of(dp) != nullptr; }));
}

std::vector<page::Table> tables(const Cells& cells) {
  return {cost_table(cells), ratio_table(cells), way_table(cells)};
}

// Figures of the cost of a sample, and of the ratios.

std::string figure_note(const Cells& cells, const std::string& more) {
  return concat(medians_note(most_rounds(cells, kSecondsASample)), " ", more);
}

std::string cell_name(const Cell& cell) {
  const std::string way = cell.way == "serial" ? "one place" : concat(cell.way, " x ", cell.places);
  return concat(way, ", batch ", cell.batch, cell.is_half() ? ", " + cell.precision : "",
      oversubscribed_mark(cell.result));
}

std::string ratio_category(const Ratio& ratio) {
  const Cell& cell = *ratio.cell;
  if (cell.is_half()) {
    const std::string size = cell.has_study_size() ? "" : concat(", ", cell.image_size, " px");
    return concat("float32 / ", cell.precision, size);
  }
  return concat("one place / places, ", ratio.has_same_batch() ? "same batch" : "large batch",
      oversubscribed_mark(cell.result));
}

std::vector<plot::Figure> figures(const Cells& cells) {
  // Images of another size cost another time: they are in the tables and in the ratios.
  const auto cost =
      BarsOf<Cell>("throughput-ms-a-sample", "ResNet50: what a sample of 224 x 224 costs",
          "way, batch of all places", "a sample [ms]", cell_name)
          .bars("here", kSecondsASample, 1000)
          .bars("predicted", predicted_seconds, 1000)
          .of(select(cells, [&](const Cell& cell) { return one_place(cell) != nullptr; }),
              figure_note(cells,
                  "Predicted: one place's time shared by the cores of all, linear scaling."));
  const auto of_way = [](const std::string& way, auto value) {
    return [way, value](const Ratio& ratio) {
      return ratio.cell->way == way ? std::invoke(value, ratio) : std::nullopt;
    };
  };
  auto relative =
      BarsOf<Ratio>("throughput-ratios",
          "How many times as fast a sample is: here, predicted, published",
          "seconds a sample of the first / of the second", "times as fast", ratio_category)
          .bars("dp here", of_way("dp", &Ratio::measured))
          .bars("ddp here", of_way("ddp", &Ratio::measured))
          .bars("predicted", of_way("dp", &Ratio::predicted))
          .bars("published, dp", &Ratio::published)
          .of(ratios(cells),
              figure_note(cells,
                  "Published: four V100 GPUs, batches of 128 and 512, half precision as float16."));
  std::erase_if(relative.series, [](const auto& series) { return series.points.empty(); });
  return {cost, relative};
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
