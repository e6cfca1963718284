#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "lockstep/bench/experiment/cell.h"
#include "lockstep/bench/studies/study_options.h"

namespace lockstep::bench {

/// Is a point of the throughput study's grid.
struct ThroughputPoint {
  std::string way = "serial";    ///< serial, dp, ddp
  int places = 1;                ///< replicas
  int batch = 128;               ///< images a step, on all places together
  std::string precision = "32";  ///< as `lockstep train --precision` takes it
  int image_size = 224;          ///< height and width
  int steps = 5000;
  int log_interval = 50;  ///< steps that a line of metrics.jsonl tells of; the first is not timed
};

/// Says how many times the first batch the second is, as in the study.
inline constexpr int kBatchFactor = 4;

/// Lists the grid: one place; dp and ddp with the same batch and with four times that; this in half
/// precision. In full it is the study's, on four places; else what a hundred seconds on two cores
/// allow, on as many places as there are cores, two at least and four at most.
std::vector<ThroughputPoint> throughput_grid(const StudyOptions& options);

/// Makes the cell of a point. One that needs more than `memory_bytes` is not measurable; 0: it is
/// not known how much there is.
StudyCell throughput_cell(
    const ThroughputPoint& point, const StudyOptions& options, std::int64_t memory_bytes);

}  // namespace lockstep::bench
