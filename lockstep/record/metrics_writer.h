#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <sys/stat.h>
#include <utility>
#include <vector>

#include "lockstep/core/file_descriptor.h"
#include "lockstep/formats/event_file.h"
#include "lockstep/record/metrics.h"
#include "lockstep/record/summary.h"

namespace lockstep {

/// A file of records, each appended by one write, so that a reader never sees a part of one. While
/// the disk is full, records wait in memory and are written before the next one: training goes on,
/// and nothing is lost. Appending to a file that was removed or renamed is a std::system_error.
class AppendedFile {
 public:
  /// Creates the file; it must not exist yet, unless `goes_on`: then records come after those that
  /// it has. `verb` begins messages. Throws std::system_error; DataError for a link, and for what
  /// is no regular file.
  AppendedFile(std::string verb, std::string path, bool goes_on = false);

  /// Returns the last bytes of a file that goes on, so many at most.
  std::string tail(std::size_t most) const;

  /// Writes this before the next record.
  void put_before(std::string_view bytes) { waiting_ += bytes; }

  /// Appends a record, or keeps it; then `take_warning` says so.
  void append(std::string_view record);

  /// Writes what waits. Throws std::system_error when the disk does not take it.
  void flush();

  /// Returns why records wait, once for each time that they begin to; empty when there is nothing
  /// new.
  std::string take_warning();

 private:
  void check_name() const;
  /// Returns the number of the error that left something waiting, or 0.
  int write_waiting();

  std::string verb_;
  std::string path_;
  FileDescriptor file_;
  struct stat facts_ {};
  std::string waiting_;
  bool is_late_ = false;
  std::string warning_;
};

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

  /// Counts the starts of the run that have written records into the folder before.
  int restarts() const { return restarts_; }

  /// Returns whether one of the last lines that were there before this start is of that split and
  /// step.
  bool had(const std::string& split, std::int64_t step) const {
    return had_.contains({split, step});
  }

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
  void look_at_lines_before();

  std::string run_;
  AppendedFile lines_;
  std::optional<EventLog> events_;
  std::set<std::pair<std::string, std::int64_t>> had_;
  int restarts_ = 0;
};

}  // namespace lockstep
