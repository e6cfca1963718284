#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "lockstep/bench/experiment/results.h"
#include "lockstep/bench/studies/pipeline/grid.h"

namespace lockstep::bench {

/// Is a cell of the pipeline study with its coordinates as numbers.
struct PipelineCell {
  PipelinePoint point;
  int cores = 1;  ///< of all its places
  CellResult result;

  /// Gives the name of its way as tables have it.
  std::string name() const;

  /// Tells whether it has a number, and its places had cores of their own.
  bool is_fair() const { return result.reason.empty() && !result.oversubscribed; }
};

/// Sorts samples into the study's cells.
std::vector<PipelineCell> pipeline_cells(const Study& study, std::span<const Sample> samples);

/// Finds the cell of a way that has one split size, or of a schedule with that one; nullptr if
/// there is none.
const PipelineCell* find_way(const std::vector<PipelineCell>& cells, const std::string& way);
const PipelineCell* find_way(
    const std::vector<PipelineCell>& cells, const std::string& way, int split);

/// Is what the study reports of a cell: over all repeats of all rounds.
struct MeanOfRuns {
  double mean = 0;       ///< seconds
  double deviation = 0;  ///< standard deviation as numpy's std: divided by the number
  int repeats = 0;
};

/// Gives mean and standard deviation of the runs; nothing if none was measured.
std::optional<MeanOfRuns> mean_of_runs(const PipelineCell& cell);

/// Is what a cell's schedule allows by itself, were all stages equal and transfers free.
struct ScheduleBound {
  double idle = 0;                    ///< share of the places' time: the bubble
  double speed_up = 1;                ///< over a single place
  std::vector<int> live_images = {};  ///< by place: most whose activations are kept, of any stage
};

/// Computes it from the schedule: its timetable with forward, gradient of the input and gradient of
/// the weights of equal length. A single place has none idle.
ScheduleBound bound_of(const PipelineCell& cell);

/// Estimates how many times as fast as a single place a cell is, or as one with the cores of both.
std::optional<Estimate> over_single(
    const std::vector<PipelineCell>& cells, const PipelineCell& cell);
std::optional<Estimate> over_both(const std::vector<PipelineCell>& cells, const PipelineCell& cell);

/// Estimates how many times as fast a pipeline is as a single place that has the same
/// micro-batches; nothing for what is no pipeline.
std::optional<Estimate> over_micro_batches(
    const std::vector<PipelineCell>& cells, const PipelineCell& cell);

/// Predicts the seconds of a run: those of a single place / the bound of the speed-up.
std::optional<double> predicted_seconds(
    const std::vector<PipelineCell>& cells, const PipelineCell& cell);

}  // namespace lockstep::bench
