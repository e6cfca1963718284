#pragma once

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "bench/experiment/runner.h"
#include "lockstep/core/error.h"

namespace lockstep::bench::testing {

/// Makes a cell that runs a shell script; in it $RUN is the sample's folder.
inline StudyCell shell_cell(const std::string& id, const std::string& script) {
  // What the runner adds, `--output FOLDER`, becomes $1 and $2.
  return {.id = id,
      .settings = {{"name", id}},
      .command = {"-c", "RUN=$2; mkdir -p \"$RUN\"; " + script, "sh"}};
}

/// Makes a cell whose samples leave this value, "seconds".
inline StudyCell value_cell(const std::string& id, double value) {
  return shell_cell(id, concat("echo ", value, " > \"$RUN/value\""));
}

/// Makes a study of cells; the value of a sample is what is in $RUN/value.
inline Study shell_study(std::vector<StudyCell> cells, int rounds) {
  Study study;
  study.name = "shell";
  study.cells = std::move(cells);
  study.rounds = rounds;
  study.limit_seconds = 600;
  study.values = [](const StudyCell&, const std::filesystem::path& run) {
    std::ifstream file(run / "value");
    double value = 0;
    if (!(file >> value)) throw DataError((run / "value").string() + ": holds no number");
    return std::map<std::string, double>{{"seconds", value}};
  };
  return study;
}

/// Options that run such a study; what is reported is kept.
struct ShellRunner {
  explicit ShellRunner(const std::filesystem::path& output) {
    options.output = output;
    options.program = "/bin/sh";
    options.say = [this](const std::string& line) { said.push_back(line); };
  }

  RunnerResult run(const Study& study) { return run_study(study, options); }

  RunnerOptions options;
  std::vector<std::string> said;
};

/// Returns `CELL-ROUND` of each sample, in order.
inline std::vector<std::string> names(const std::vector<Sample>& samples) {
  std::vector<std::string> result;
  for (const Sample& sample : samples) result.push_back(concat(sample.cell, "-", sample.round));
  return result;
}

}  // namespace lockstep::bench::testing
