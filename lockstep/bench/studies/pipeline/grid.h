#pragma once

#include <string>
#include <vector>

#include "lockstep/bench/experiment/cell.h"
#include "lockstep/bench/studies/study_options.h"

namespace lockstep::bench {

/// Gives how many batches make a run, in the study and here.
inline constexpr int kPipelineRunBatches = 3;

/// Gives how many places a pipeline has.
inline constexpr int kPipelinePlaces = 2;

/// Gives the batch that the study divides.
inline constexpr int kPipelineStudyBatch = 120;

inline constexpr const char* kSinglePlace = "single";         ///< with the cores of one place
inline constexpr const char* kCoresOfBoth = "single-both";    ///< one place with those of two
inline constexpr const char* kMicroBatches = "single-micro";  ///< a single place, by micro-batches
inline constexpr const char* kModelParallel = "mp";
inline constexpr const char* kStudysSchedule = "gpipe";  ///< all forwards, then all backwards

/// Is a point of the pipeline study's grid.
struct PipelinePoint {
  std::string way = kSinglePlace;   ///< one of those above, or a schedule: gpipe, 1f1b, ...
  int batch = kPipelineStudyBatch;  ///< images a step
  int split = kPipelineStudyBatch;  ///< images of a micro-batch
  int repeats = 1;                  ///< runs that each process measures, after a step to warm up

  /// Gives the number of micro-batches.
  int chunks() const { return batch / split; }

  /// Tells whether the net is cut into stages.
  bool is_cut() const { return way != kSinglePlace && way != kCoresOfBoth && way != kMicroBatches; }

  /// Gives how many places' cores it has.
  int cores_of_places() const {
    return way == kSinglePlace || way == kMicroBatches ? 1 : kPipelinePlaces;
  }
};

/// Lists the grid: the study's own with the schedules that it lacks, or the part of it with a
/// fifteenth of the batch that two minutes on two cores allow.
std::vector<PipelinePoint> pipeline_grid(bool full);

/// Gives the split size at which ways are compared: a sixth of the batch, the study's 20 of 120,
/// but at least 2.
constexpr int standard_split(int batch) { return batch < 12 ? 2 : batch / 6; }

/// Makes the cell of a point.
StudyCell pipeline_cell(const PipelinePoint& point, const StudyOptions& options);

}  // namespace lockstep::bench
