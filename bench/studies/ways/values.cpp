#include <algorithm>

#include "bench/studies/ways/study.h"
#include "bench/study/contenders.h"
#include "bench/study/run_files.h"
#include "bench/study/timed_steps.h"
#include "lockstep/core/error.h"
#include "lockstep/core/text.h"

namespace lockstep::bench::ways {
namespace {

constexpr double kLimit = 30 * 60;  // seconds; of a slow net a single step may take minutes
constexpr int kMostRounds = 20;

bool has_same_work(const Cell& one, const Cell& other) {
  return one.batch == other.batch && one.precision == other.precision;
}

// Times how much hardware a cell has of the other's.
double times_hardware(const Cell& cell, const Cell& base) {
  if (!cell.result.cell.on_cores) return static_cast<double>(cell.places) / base.places;
  return static_cast<double>(cell.cores) / base.cores;
}

std::string title_of(const StudyOptions& options) {
  const std::string data = options.data.empty() ? "" : " on " + data_name(options.data.back());
  const std::string flags = joined(options.ways.train_flags, " ");
  return concat(
      "Ways: ", options.ways.model, data, flags.empty() ? "" : concat(", trained with ", flags));
}

}  // namespace

SampleValues values_of(const Point& point, const std::filesystem::path& run, std::int64_t warm_up) {
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

Study make_study(const StudyOptions& options) {
  Study study = StudyOf<Point>{.name = "ways",
      .title = title_of(options),
      .question = "Which way of spreading is the fastest for this model on this machine?",
      .rounds = options.rounds_or(kMostRounds),
      .limit_seconds = kLimit,
      .grid = grid(options),
      .cell = [options](const Point& point) { return cell_of(point, options); },
      .values =
          [images = options.ways.images](const Point& point, const std::filesystem::path& run) {
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

const Cell* serial_of(const Cells& cells, const Cell& cell) {
  const Cell* fewest = nullptr;
  for (const Cell& each : cells) {
    if (each.way != "serial" || !has_same_work(each, cell)) continue;
    if (fewest == nullptr || each.cores < fewest->cores) fewest = &each;
  }
  return fewest;
}

std::optional<Estimate> speed_up(const Cells& cells, const Cell& cell) {
  const Cell* base = serial_of(cells, cell);
  return base == &cell ? std::nullopt : ratio_of(&cell, base, kRate);
}

std::optional<double> efficiency(const Cells& cells, const Cell& cell) {
  const auto faster = speed_up(cells, cell);
  if (!faster) return std::nullopt;
  return faster->median / times_hardware(cell, *serial_of(cells, cell));
}

}  // namespace lockstep::bench::ways
