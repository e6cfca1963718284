#pragma once

#include <filesystem>
#include <optional>
#include <string>

#include "bench/experiment/cell.h"
#include "bench/experiment/cell_process.h"
#include "bench/experiment/sample_process.h"
#include "lockstep/launch/child_process.h"

namespace lockstep::bench {

/// Runs of cells that are not noted as samples: what a study does before the first.
class Trials {
 public:
  /// Runs in OUTPUT/runs/STUDY.
  Trials(const CellPaths& paths, const std::string& study);

  /// Runs a cell anew, with its output in `run`. Throws StoppedError if a signal comes meanwhile
  /// that would end us.
  SampleEnd run(const StudyCell& cell, const std::filesystem::path& run, double limit_seconds);

  std::filesystem::path log_of(const StudyCell& cell) const {
    return folder_ / (cell.id + "-trial.log");
  }
  std::filesystem::path run_of(const StudyCell& cell) const {
    return folder_ / (cell.id + "-trial");
  }

 private:
  const CellPaths& paths_;
  const std::filesystem::path folder_;
  const launch::Subreaper subreaper_;
  std::optional<launch::SignalReader> signals_;
};

}  // namespace lockstep::bench
