#include "bench/experiment/trials.h"

#include <csignal>
#include <vector>

#include "lockstep/core/exit_code.h"

namespace lockstep::bench {

namespace fs = std::filesystem;

Trials::Trials(const CellPaths& paths, const std::string& study)
    : paths_(paths),
      folder_(fs::absolute(paths.bench) / "runs" / study),
      signals_(std::vector<int>{SIGINT, SIGTERM, SIGHUP}) {
  fs::create_directories(folder_);
}

SampleEnd Trials::run(const StudyCell& cell, const fs::path& run, double limit_seconds) {
  fs::remove_all(run);  // of a bench that was stopped
  const SampleCommand command =
      process_of(cell, paths_, run, {.file = log_of(cell), .limit_seconds = limit_seconds});
  SampleEnd end = run_sample(command, *signals_);
  if (end.signal == 0) return end;
  signals_.reset();
  throw StoppedError(end.signal);
}

}  // namespace lockstep::bench
