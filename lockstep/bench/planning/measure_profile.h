#pragma once

#include <functional>
#include <string>
#include <vector>

#include "lockstep/bench/experiment/cell_process.h"
#include "lockstep/bench/planning/profile_of_runs.h"

namespace lockstep::bench {

/// The training whose profile is measured.
struct MeasureRequest {
  std::string model;
  std::string plugin = {};
  std::string data = "mock:constant";
  std::string precision = "32";
  std::vector<int> batches;  ///< of a place
  int cores = 1;             ///< that may be used
  int cores_a_place = 1;
  std::vector<std::string> train_flags = {};  ///< more words for each `lockstep train`
};

/// Returns the trainings that are measured: on one place with each batch, and by ddp on two places
/// where there are cores for it.
std::vector<StudyCell> profile_cells(const MeasureRequest& request);

/// Trains them in a folder, `paths.bench`, and makes the profile; the facts are completed by what
/// is measured. Throws InvalidArgument with what a training said that failed.
plan::ModelProfile measure_profile(const MeasureRequest& request, const ProfileFacts& facts,
    const CellPaths& paths, const std::function<void(const std::string&)>& say);

}  // namespace lockstep::bench
