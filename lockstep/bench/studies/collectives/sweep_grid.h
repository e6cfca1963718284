#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "lockstep/bench/collectives/collective.h"
#include "lockstep/bench/experiment/cell.h"
#include "lockstep/bench/studies/study_options.h"

namespace lockstep::bench {

/// Is a way of carrying collectives that the study compares.
struct CollectiveWay {
  std::string name;   ///< of the setting `way`, and in files' names
  std::string title;  ///< in tables and figures
  std::vector<std::string> flags;
};

/// Is what the others are compared with.
inline constexpr const char* kGloo = "gloo";

/// Lists the ways, Gloo last.
const std::vector<CollectiveWay>& collective_ways();

/// Is a point of the study's grid: a sweep over sizes.
struct SweepPoint {
  Collective collective = Collective::kAllReduce;
  std::string way;
  int ranks = 2;
};

/// Lists the grid: the whole one, or the part of it that forty seconds on two cores allow.
std::vector<SweepPoint> sweep_grid(bool full);

/// Gives the sizes of the messages of a sweep, in bytes: those of a cell, by its settings.
std::vector<std::int64_t> sweep_sizes(std::int64_t largest);

/// Makes the cell of a point.
StudyCell sweep_cell(const SweepPoint& point, const StudyOptions& options);

}  // namespace lockstep::bench
