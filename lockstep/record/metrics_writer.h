#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "lockstep/record/event_log.h"
#include "lockstep/record/metrics.h"
#include "lockstep/record/summary.h"

namespace lockstep {

struct MetricsWriterOptions {
  bool tensorboard = false;  ///< writes RUN/tensorboard too, what `tensorboard --logdir` reads
  std::int64_t steps = 0;    ///< that were made before this start
  bool goes_on = true;       ///< after what the files have; else there must be no metrics.jsonl
};

/// The writer of what a run measures, into its folder: metrics.jsonl, of which `lockstep report
/// RUN` makes tables and a page, event files of TensorBoard, and summary.json. Make it on rank 0
/// only.
///
///     lockstep::MetricsWriter metrics("runs/mine", {.tensorboard = true, .steps = step});
///     ...
///       metrics.append({.epoch = epoch + 1, .step = step, .split = "train",
///           .scores = {.loss = loss}, .lr = lr, .more = {{"perplexity", std::exp(loss)}}});
class MetricsWriter {
 public:
  /// Makes the folder and the files. Throws std::system_error; DataError for links.
  explicit MetricsWriter(const std::string& run, const MetricsWriterOptions& options = {});

  /// Counts the starts of the run that have written into the folder before.
  int restarts() const { return log_.restarts(); }

  /// Returns whether one of the last lines that were there before this start is of that split and
  /// step.
  bool had(const std::string& split, std::int64_t step) const { return log_.had(split, step); }

  /// Appends a record, with the number of this start. While a disk is full it waits in memory, and
  /// take_warning() says so. Throws InvalidArgument for a name of `more` that the file uses itself.
  void append(MetricRecord record);

  /// Writes what a full disk has left. Throws std::system_error when lines of metrics.jsonl still
  /// have no room.
  void flush();

  /// Returns why something waits, or why there are no events; empty when there is nothing new.
  std::string take_warning();

  /// Writes summary.json, which says how the run ended. Throws std::system_error.
  void finish(const RunSummary& summary) const;

 private:
  std::string run_;
  MetricsLog log_;
  std::optional<EventLog> events_;
};

}  // namespace lockstep
