#pragma once

#include <string>

#include "lockstep/core/file_descriptor.h"
#include "lockstep/train/record/metrics.h"

namespace lockstep {

/// Appends records to a file, each by one write, so that a reader never sees half a line. What a
/// full disk does not take waits in memory and goes before the next record: no training ends for
/// it, and no line is lost.
class MetricsLog {
 public:
  /// Creates the file; it must not exist yet, unless `goes_on`: then records come after those that
  /// it has. Throws std::system_error.
  explicit MetricsLog(const std::string& path, bool goes_on = false);

  /// Counts the lives of the run that have written records into the file before.
  int restarts() const { return restarts_; }

  /// Appends a record, or keeps it; `take_warning` tells.
  void append(const MetricRecord& record);

  /// Writes what waits. Throws std::system_error when the disk does not take it.
  void flush();

  /// Says why records wait, once for each time that they begin to; empty when there is nothing new.
  std::string take_warning();

 private:
  /// Gives the number of the error that left something waiting, or 0.
  int write_waiting();

  std::string path_;
  FileDescriptor file_;
  int restarts_ = 0;
  std::string waiting_;
  std::string warning_;
};

}  // namespace lockstep
