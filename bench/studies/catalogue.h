#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "bench/experiment/cell_process.h"
#include "bench/experiment/study.h"
#include "bench/study/study_options.h"

namespace lockstep::bench {

/// A study that can be run.
struct StudyEntry {
  std::string name;               ///< as on the command line
  std::string about;              ///< what it measures, in a line
  std::vector<std::string> data;  ///< names of the sets that it can take
  Study (*make)(const StudyOptions& options);
  /// Sees before hours of work that what the study needs is there, or makes it in the bench's
  /// folder; what is already made stays. nullptr: it needs nothing.
  void (*prepare)(const StudyOptions& options, const std::filesystem::path& output);
  bool takes_pretrained = false;  ///< weights to begin with, with the whole grid
  bool trains = true;             ///< else it has nothing to do with `lockstep train --device`
  /// Finds out before the first sample what belongs into the options. Not nullptr: the grid and the
  /// data are the user's, and `all` leaves the study out.
  void (*explore)(StudyOptions& options, const CellPaths& paths) = nullptr;

  /// Trains what the cells begin with and keeps it in the bench's folder; what is already there
  /// stays. nullptr: they begin with nothing that must be trained.
  void (*pretrain)(const StudyOptions& options, const CellPaths& paths) = nullptr;

  /// Of one round of the quick grid on two cores, without what work does not change.
  double quick_seconds = 0;
  bool takes_nodes = false;  ///< real hosts for its cells of several nodes

  bool is_of_user() const { return explore != nullptr; }
};

/// Lists the studies in the order in which `bench all` runs them.
const std::vector<StudyEntry>& study_catalogue();

/// Finds a study by its name; nullptr if there is none.
const StudyEntry* find_study(const std::string& name);

}  // namespace lockstep::bench
