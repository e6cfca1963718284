#include "lockstep/bench/run_report.h"

namespace lockstep::bench {

RunReport read_run_report(const std::filesystem::path& path) {
  RunReport report{.folder = read_run_folder(path), .history = {}};
  report.history = run_history(report.folder.metrics.lines);
  return report;
}

}  // namespace lockstep::bench
