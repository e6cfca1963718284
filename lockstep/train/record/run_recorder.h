#pragma once

#include <string>
#include <vector>

#include "lockstep/train/options/options.h"
#include "lockstep/train/record/metrics_log.h"
#include "lockstep/train/record/run_directory.h"
#include "lockstep/train/record/summary.h"

namespace lockstep {

/// Writes a run's folder. Make it on rank 0 only.
class RunRecorder {
 public:
  /// Makes the folder of the options' output, and in it config.toml, command.txt, env.json,
  /// metrics.jsonl; or goes on with the run that it holds, if the options say so.
  RunRecorder(
      const TrainOptions& options, const std::vector<std::string>& command,
      const std::string& environment_json);

  /// Names a file in the folder.
  std::string file(const std::string& name) const { return directory_.file(name); }

  /// Counts the lives of the run before this one.
  int restarts() const { return metrics_.restarts(); }

  /// Appends to metrics.jsonl, with the number of this life.
  void append(MetricRecord record) {
    record.restart = metrics_.restarts();
    metrics_.append(record);
  }

  /// Writes the lines that a full disk has left. Throws std::system_error when it still is.
  void flush() { metrics_.flush(); }

  /// Says why lines wait, as MetricsLog does.
  std::string take_warning() { return metrics_.take_warning(); }

  /// Writes summary.json.
  void finish(const RunSummary& summary) const;

 private:
  RunDirectory directory_;
  MetricsLog metrics_;
};

}  // namespace lockstep
