#pragma once

#include <string>
#include <vector>

#include "lockstep/bench/experiment/study.h"
#include "lockstep/bench/studies/study_options.h"

namespace lockstep::bench {

/// Is a study that can be run.
struct StudyEntry {
  std::string name;   ///< as on the command line
  std::string about;  ///< what it measures, in a line
  Study (*make)(const StudyOptions& options);
};

/// Lists the studies in the order in which `bench all` runs them.
const std::vector<StudyEntry>& study_catalogue();

/// Finds a study by its name; nullptr if there is none.
const StudyEntry* find_study(const std::string& name);

}  // namespace lockstep::bench
