#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/comm/process_group.h"
#include "lockstep/data/image_samples.h"
#include "lockstep/liveness/progress_page.h"
#include "lockstep/train/input/datasets.h"
#include "lockstep/train/record/progress.h"
#include "lockstep/train/record/run_directory.h"

namespace lockstep {

/// The image files that could not be read and were skipped, each reported once.
class BadImageWatch {
 public:
  explicit BadImageWatch(std::vector<std::shared_ptr<const data::FolderSamples>> folders);

  /// Returns a line for each bad file that this rank has met since the last call.
  std::vector<std::string> news();

  /// Counts the bad files that any rank has met; a file that several met counts once. A collective.
  std::int64_t count(const ProcessGroup& world) const;

 private:
  std::vector<std::shared_ptr<const data::FolderSamples>> folders_;
  std::set<std::pair<std::size_t, std::int64_t>> reported_;
};

/// One rank's reports of a run: warnings on stderr, its steps to the launcher; on rank 0 also the
/// progress and the run's folder.
class RunLog {
 public:
  /// Makes the run's folder on rank 0; `command` is what command.txt shall say. A run that this one
  /// `replaces` is removed first. `steps` were made before this start. A collective.
  RunLog(const TrainOptions& options, const ProcessGroup& world,
      const std::vector<std::string>& command, const Datasets& data, bool replaces = false,
      std::int64_t steps = 0);

  Progress& progress() { return progress_; }

  /// Returns the run's folder; null on other ranks than 0.
  RunRecorder* recorder() { return recorder_ ? &*recorder_ : nullptr; }

  /// Reports that the training has made this many steps.
  void step(std::int64_t steps);

  /// Appends to metrics.jsonl, and warns if the disk is full.
  void record(const MetricRecord& record);

  /// Returns the last records, among them those that are not in metrics.jsonl if rank 0 has died:
  /// it has written what came before its last collective.
  const std::vector<MetricRecord>& last_records() const { return last_records_; }

  void warn(const std::string& text) { progress_.warn(text); }

  /// Warns of each image that this rank could not read since the last call.
  void warn_of_bad_images();

  /// Warns once if the steps of an interval waited for their images.
  void warn_of_slow_loader(const MeterReading& reading, int workers);

  /// Counts the images that any rank could not read. A collective.
  std::int64_t bad_images(const ProcessGroup& world) const { return bad_images_.count(world); }

  /// Returns the seconds that a restart by our launcher has cost.
  std::optional<double> recovery_seconds() const;

 private:
  std::optional<ProgressPage> page_;
  BadImageWatch bad_images_;
  Progress progress_;
  std::optional<RunRecorder> recorder_;
  std::vector<MetricRecord> last_records_;
  bool has_warned_of_loader_ = false;
};

/// Returns a warning with advice if steps wait for their images for a fifth of their time or more.
std::optional<std::string> slow_loader_warning(const MeterReading& reading, int workers);

}  // namespace lockstep
