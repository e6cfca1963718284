#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "bench/study/study_of.h"
#include "bench/study/study_options.h"

/// What it costs to cut ResNet50 over two places, and how much of that a pipeline, its split size
/// and its schedule win back.
namespace lockstep::bench::pipeline {

inline constexpr int kPlaces = 2;        ///< of a pipeline
inline constexpr int kStudyBatch = 120;  ///< that the study divides

inline constexpr const char* kSinglePlace = "single";         ///< with the cores of one place
inline constexpr const char* kCoresOfBoth = "single-both";    ///< one place with those of two
inline constexpr const char* kMicroBatches = "single-micro";  ///< a single place, by micro-batches

/// A point of the grid.
struct Point {
  std::string way = kSinglePlace;  ///< one of those above, mp, or a schedule: gpipe, 1f1b, ...
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

/// Makes the study: its own grid with the schedules that it lacks, or the part of it with a
/// fifteenth of the batch that takes two minutes on two cores.
Study make_study(const StudyOptions& options);

/// Reads from metrics.jsonl, which must have a line for each step, how long runs of this many steps
/// took after the first step, which warms up; and from summary.json the peak of the memory. Steps
/// that are left over are not a run. Without a whole run, or with lines missing, throws a
/// DataError.
SampleValues values_of(const std::filesystem::path& run, int batches);

/// The bound that a schedule itself sets, if all stages were equal and transfers free.
struct ScheduleBound {
  double idle = 0;                    ///< share of the places' time: the bubble
  double speed_up = 1;                ///< over a single place
  std::vector<int> live_images = {};  ///< by place: most whose activations are kept, of any stage
};

/// Computes it from the schedule's timetable with forward, gradient of the input and gradient of
/// the weights of equal length. A single place has none idle.
ScheduleBound bound_of(const Point& point);

}  // namespace lockstep::bench::pipeline
