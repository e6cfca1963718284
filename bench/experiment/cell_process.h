#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "bench/experiment/cell.h"
#include "bench/experiment/sample_process.h"

namespace lockstep::bench {

/// The paths that stand in a cell's command.
struct CellPaths {
  std::string program;          ///< of `lockstep`
  std::filesystem::path bench;  ///< the bench's folder
};

/// The output of a cell's process, and its end.
struct CellLog {
  std::filesystem::path file;
  double limit_seconds = 0;
};

/// Returns a cell's command as samples note it: with its program, where that is not `lockstep`.
std::vector<std::string> noted_command(const StudyCell& cell);

/// Makes the child process that runs a cell with the output in `run`. A program that is not there
/// is an InvalidArgument.
SampleCommand process_of(const StudyCell& cell, const CellPaths& paths,
    const std::filesystem::path& run, const CellLog& log);

}  // namespace lockstep::bench
