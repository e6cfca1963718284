#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "bench/study/study_of.h"
#include "bench/study/study_options.h"

/// What it costs to cut ResNet50 over two places, and how much of that a pipeline, its split size
/// and its schedule win back.
namespace lockstep::bench::pipeline {

inline constexpr int kRunBatches = 3;    ///< that make a run, in the study and here
inline constexpr int kPlaces = 2;        ///< of a pipeline
inline constexpr int kStudyBatch = 120;  ///< that the study divides

inline constexpr const char* kSinglePlace = "single";         ///< with the cores of one place
inline constexpr const char* kCoresOfBoth = "single-both";    ///< one place with those of two
inline constexpr const char* kMicroBatches = "single-micro";  ///< a single place, by micro-batches
inline constexpr const char* kModelParallel = "mp";
inline constexpr const char* kStudysSchedule = "gpipe";  ///< all forwards, then all backwards

inline constexpr const char* kRunSeconds = "run_seconds";    ///< mean over the repeats
inline constexpr const char* kRunVariance = "run_variance";  ///< of the repeats, in seconds squared
inline constexpr const char* kRunRepeats = "repeats";
inline constexpr const char* kPeakMemory = "peak_memory_bytes";

/// A point of the grid.
struct Point {
  std::string way = kSinglePlace;  ///< one of those above, or a schedule: gpipe, 1f1b, ...
  int batch = kStudyBatch;         ///< images a step
  int split = kStudyBatch;         ///< images of a micro-batch
  int repeats = 1;                 ///< runs that each process measures, after a step to warm up

  /// Returns the number of micro-batches.
  int chunks() const { return batch / split; }

  /// True if the net is cut into stages.
  bool is_cut() const { return way != kSinglePlace && way != kCoresOfBoth && way != kMicroBatches; }

  /// Returns how many places' cores it has.
  int cores_of_places() const { return way == kSinglePlace || way == kMicroBatches ? 1 : kPlaces; }

  /// Returns the name of its way as tables have it.
  std::string name() const;
};

using Cell = Measured<Point>;
using Cells = std::vector<Cell>;

/// Makes the study. Its samples have the values of values_of().
Study make_study(const StudyOptions& options);

/// Lists the grid: the study's own with the schedules that it lacks, or the part of it with a
/// fifteenth of the batch that takes two minutes on two cores.
std::vector<Point> grid(const StudyOptions& options);

/// Returns the split size at which ways are compared: a sixth of the batch, the study's 20 of 120,
/// but at least 2.
constexpr int standard_split(int batch) { return batch < 12 ? 2 : batch / 6; }

StudyCell cell_of(const Point& point, const StudyOptions& options);

/// Reads from metrics.jsonl, which must have a line for each step, how long runs of this many steps
/// took after the first step, which warms up; and from summary.json the peak of the memory. Steps
/// that are left over are not a run. Without a whole run, or with lines missing, throws a
/// DataError.
SampleValues values_of(const std::filesystem::path& run, int batches);

/// Finds the cell of a way that has one split size, or of a schedule with that one; nullptr if
/// there is none.
const Cell* find_way(const Cells& cells, const std::string& way);
const Cell* find_way(const Cells& cells, const std::string& way, int split);

/// The study's figures of a cell, over all repeats of all rounds.
struct MeanOfRuns {
  double mean = 0;       ///< seconds
  double deviation = 0;  ///< standard deviation as numpy's std: divided by the number
  int repeats = 0;
};

/// Returns mean and standard deviation of the runs; nothing if none was measured.
std::optional<MeanOfRuns> mean_of_runs(const Cell& cell);

/// The bound that a schedule itself sets, if all stages were equal and transfers free.
struct ScheduleBound {
  double idle = 0;                    ///< share of the places' time: the bubble
  double speed_up = 1;                ///< over a single place
  std::vector<int> live_images = {};  ///< by place: most whose activations are kept, of any stage
};

/// Computes it from the schedule's timetable with forward, gradient of the input and gradient of
/// the weights of equal length. A single place has none idle.
ScheduleBound bound_of(const Point& point);

/// Estimates how many times as fast as a single place a cell is, or as one with the cores of both.
std::optional<Estimate> over_single(const Cells& cells, const Cell& cell);
std::optional<Estimate> over_both(const Cells& cells, const Cell& cell);

/// Estimates how many times as fast a pipeline is as a single place that has the same
/// micro-batches; nothing for what is not a pipeline.
std::optional<Estimate> over_micro_batches(const Cells& cells, const Cell& cell);

/// Predicts the seconds of a run: those of a single place / the bound of the speed-up.
std::optional<double> predicted_seconds(const Cells& cells, const Cell& cell);

/// Tables of run times, of speed-ups beside the bound of the bubble, and of peak memory.
std::vector<page::Table> tables(const Cells& cells);

/// The figures of the study, those of the schedules that it lacks, and of peak memory.
std::vector<plot::Figure> figures(const Cells& cells);

/// Answers how much of a cut's cost a pipeline wins back, and whether the cut pays.
page::Conclusion conclusion(const Cells& cells);

}  // namespace lockstep::bench::pipeline
