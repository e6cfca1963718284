#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/formats/event_file.h"
#include "lockstep/record/appended_file.h"
#include "lockstep/record/metrics.h"

namespace lockstep {

/// Returns the numbers of a record under names for TensorBoard, such as `train/loss`: all that it
/// has of kScores, kRates and its own.
std::vector<EventScalar> scalars_of(const MetricRecord& record);

/// Removes the event files that a run has made in its folder tensorboard/, and the folder if
/// nothing else is in it.
void remove_events(const std::string& run);

/// A run's records as events of TensorBoard: one new file in its folder tensorboard/ for each
/// start. It costs no run its end: where the file is lost, a warning says so, once.
class EventLog {
 public:
  /// Makes the file. In a folder that has event files already it says that the run goes on after
  /// so many steps, so that a later one which those files have is not shown twice. Throws
  /// std::system_error; DataError where the folder is a link.
  EventLog(const std::string& run, std::int64_t steps);

  /// Appends a record, or keeps it while the disk is full.
  void append(const MetricRecord& record);

  /// Writes what waits.
  void flush();

  /// Returns why records wait or are lost, once; empty when there is nothing new.
  std::string take_warning();

 private:
  void write(const std::string& record);
  void give_up(const std::string& reason);

  std::optional<AppendedFile> file_;
  std::string warning_;
};

}  // namespace lockstep
