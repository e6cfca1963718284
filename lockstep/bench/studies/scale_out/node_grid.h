#pragma once

#include <string>
#include <vector>

#include "lockstep/bench/experiment/cell.h"
#include "lockstep/bench/studies/study_options.h"

namespace lockstep::bench::scale_out {

/// Is a cell's place in the study: so many nodes, and whether a worker is killed in the middle.
struct NodePoint {
  int nodes = 1;
  bool killed = false;
};

/// Makes the study's cells: 1, 2, 4, 8 nodes, then the one with a killed worker.
std::vector<StudyCell> node_grid(const StudyOptions& options);

/// Gives the set that is trained on, as `lockstep train --data` takes it.
std::string node_data(const StudyOptions& options);

/// Tells whether a set has images to validate on, so that none are to be held out.
bool has_validation(const std::string& data);

/// Says how many cores a host of this machine is: as many for every number of nodes.
int cores_a_host(const StudyOptions& options);

}  // namespace lockstep::bench::scale_out
