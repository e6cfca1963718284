#pragma once

#include <string>
#include <vector>

#include "lockstep/bench/experiment/cell.h"
#include "lockstep/bench/studies/study_options.h"

namespace lockstep::bench {

/// Is a point of the ddp-scaling study's grid.
struct ScalingPoint {
  int nodes = 1;
  int places = 1;                    ///< on all nodes, each a rank
  std::string started_by = "train";  ///< train: one place; run, torchrun; hosts: two nodes
};

/// Is how many images the quick grid's set has to train with: enough for its steps of four places.
inline constexpr int kQuickImages = 2048;

/// Names the link of hosts that are made within this machine.
inline constexpr const char* kLinkRate = "1gbit";

/// Lists the grid: the study's four cells and, that the network can be told from the number of
/// places, two places on two nodes.
std::vector<ScalingPoint> scaling_grid();

/// Gives the set that the study trains on, as `lockstep train --data` takes it.
std::string scaling_set(const StudyOptions& options);

/// Makes the cell of a point.
StudyCell scaling_cell(const ScalingPoint& point, const StudyOptions& options);

}  // namespace lockstep::bench
