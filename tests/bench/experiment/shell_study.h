#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "bench/experiment/runner.h"

namespace lockstep::bench::testing {

/// Makes a cell that runs a shell script; in it $RUN is the sample's folder.
StudyCell shell_cell(const std::string& id, const std::string& script);

/// Makes a cell whose samples leave this value, "seconds".
StudyCell value_cell(const std::string& id, double value);

/// Makes a study of cells; the value of a sample is what is in $RUN/value.
Study shell_study(std::vector<StudyCell> cells, int rounds);

/// Makes options that run such a study; what is reported is kept.
class ShellRunner {
 public:
  explicit ShellRunner(const std::filesystem::path& output);

  RunnerResult run(const Study& study);

  RunnerOptions options;
  std::vector<std::string> said;
};

/// Returns `CELL-ROUND` of each sample, in order.
std::vector<std::string> names(const std::vector<Sample>& samples);

/// Reads a whole file; "" where there is none.
std::string text_of(const std::filesystem::path& path);

}  // namespace lockstep::bench::testing
