#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "bench/experiment/study.h"

namespace lockstep::bench {

/// The place and manner of running a study.
struct RunnerOptions {
  std::filesystem::path output;  ///< made if missing; what it holds of this study is continued
  std::string program;           ///< path of `lockstep`
  std::uint64_t seed = 42;       ///< of the order of the cells in each round
  int cores = 0;                 ///< above them places are oversubscribed; 0: those usable here
  std::optional<double> budget_seconds = {};  ///< after which no further sample begins
  bool keep_runs = false;     ///< keeps OUTPUT/runs/STUDY/CELL-ROUND/ after its values were read
  bool retry_failed = false;  ///< takes samples that failed earlier again
  /// Takes one line at a time, without newline: progress, failures. Empty: stderr, each line begun
  /// by `lockstep bench: `.
  std::function<void(const std::string& line)> say;
};

/// The outcome of running a study.
struct RunnerResult {
  std::vector<Sample> samples;  ///< of this study, also of earlier runs; one a cell and round
  int signal = 0;               ///< that stopped it before all was measured; 0: none did

  /// Returns 128 + the signal, or 1 if a sample failed, or 0.
  int exit_code() const;
};

/// Measures what OUTPUT/samples.jsonl lacks of the study: round by round, in an order drawn from
/// the seed, each sample one child process with its output in OUTPUT/runs/STUDY/CELL-ROUND.log.
///
/// A sample that fails (exit code, signal, time limit, unreadable results) is recorded with its
/// reason, and the rest goes on. A cell that cannot be measured gets one sample that says why.
/// A cell is passed over in rounds of which the study says that they are not worth its time.
/// SIGINT, SIGTERM and SIGHUP kill the child's process group and end it; calling it again
/// continues. Call it in the main thread: a child dies with the thread that started it.
///
/// Throws InvalidArgument when the folder holds samples of this study that are not of its cells or
/// were made by another command; DataError, std::system_error.
RunnerResult run_study(const Study& study, const RunnerOptions& options);

}  // namespace lockstep::bench
