#pragma once

#include <string>
#include <vector>

#include "lockstep/bench/experiment/cell.h"
#include "lockstep/bench/studies/study_options.h"

namespace lockstep::bench {

/// Is a point of the data-parallel study's grid.
struct GridPoint {
  std::string model = "mnist-small";
  int repeat = 1;              ///< passes over the set that make an epoch
  int batch = 128;             ///< images a step on each replica
  int places = 1;              ///< replicas
  std::string way = "serial";  ///< dp, ddp, or serial: the one place that both begin from
  int steps = 0;               ///< an epoch is cut after so many; 0: it is whole
};

/// Lists the grid: the study's own, or the part of it that a hundred seconds on two cores allow.
std::vector<GridPoint> data_parallel_grid(bool full);

/// Gives the set that the study trains on, as `lockstep train --data` takes it.
std::string data_parallel_set(const StudyOptions& options);

/// Says how many cores a place is: a fourth of them, so that up to four places differ in nothing
/// else, and at least one.
int cores_a_place(int cores);

/// Gives the flags by which `lockstep train` spreads over so many places: dp, ddp, or serial.
std::vector<std::string> spreading_flags(const std::string& way, int places);

/// Makes the cell of a point.
StudyCell cell_of(const GridPoint& point, const StudyOptions& options);

}  // namespace lockstep::bench
