#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <exception>
#include <filesystem>
#include <future>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/comm/process_group.h"
#include "lockstep/nn/named_state.h"
#include "lockstep/snapshot/host_copy.h"
#include "lockstep/snapshot/optimizer_state.h"
#include "lockstep/snapshot/pending_snapshot.h"
#include "lockstep/snapshot/snapshot_files.h"
#include "lockstep/snapshot/snapshot_folder.h"
#include "lockstep/snapshot/snapshot_hosts.h"
#include "lockstep/snapshot/snapshot_interval.h"

namespace lockstep {

/// The content of one file of tensors.
struct SnapshotContent {
  nn::NamedTensors tensors{"Tensor"};
  std::map<std::string, std::string> metadata = {};
};

/// Makes the content of an optimizer's file.
inline SnapshotContent content_of(OptimizerState state) {
  return {std::move(state.tensors), {{kOptimizerOptions, std::move(state.options)}}};
}

/// One rank's part of a snapshot.
struct SnapshotPart {
  std::map<std::string, SnapshotContent> files = {};  ///< by name: see snapshot_file_names()
  std::string state = {};                             ///< state.json, of rank 0
  bool best = false;                                  ///< of rank 0: none was better so far
  /// What is on accelerators stays as it is until SnapshotSaver::before_step().
  bool stays = false;
  /// Scalars of accelerators, which the thread looks at once they are there: one that is true says
  /// that the run has diverged. Then the snapshot is given up, and `divergence` says why.
  std::vector<torch::Tensor> overflows = {};
  std::string divergence = {};  ///< the same on all ranks
};

/// A copy of a rank's part of a snapshot, whose memory serves again.
class PartCopy {
 public:
  /// Copies it as HostCopy::begin() does, the `overflows` with it.
  void begin(const SnapshotPart& part);
  void let_writers_wait() { tensors_.let_writers_wait(); }

  /// Returns the files of what was copied last. Throws DivergedError if an overflow is true.
  std::vector<OwnFile> files();

 private:
  HostCopy tensors_;
  std::vector<std::string> names_;  // of the files, in the order of the copies
  std::vector<std::map<std::string, std::string>> metadata_;
  std::string state_, divergence_;
};

/// Saves a snapshot of which one rank holds all, without the others: no collective. Returns once it
/// is durable; false if it is there already, or another rank that lost its peers is writing the
/// same. `keep` is that of SnapshotSaverOptions.
///
/// Throws std::system_error for what the disk does not take; then those before are as they were.
bool save_alone(
    const std::filesystem::path& run, int keep, std::int64_t step, const SnapshotPart& part);

struct SnapshotSaverOptions {
  std::filesystem::path run;
  int keep = 2;              ///< the newest ones; the best one comes on top
  bool required = false;     ///< one that cannot be written is an error, not a warning
  SnapshotHosts hosts = {};  ///< if they do not share the folder
  /// With what other ranks make in the folder, where nobody says that they failed: a client of NFS
  /// may believe for 60 s that a name is not there.
  std::chrono::seconds patience{90};
};

/// A rank's knowledge of the save in flight. Ranks combine it by the maximum of each number.
struct SnapshotReport {
  double busy = 0;                ///< 1 while its thread works on it
  double failed = 0;              ///< 1 once it has failed
  double stall_seconds = 0;       ///< in which its training stood still
  double background_seconds = 0;  ///< of its thread

  friend bool operator==(const SnapshotReport&, const SnapshotReport&) = default;
};

/// Saves what all ranks hold while they train on; at most one save is in flight.
///
/// Note [Saving]
/// save() stops training for one copy into memory. A thread of each rank writes the files of the
/// copy into the snapshot's folder, which rank 0's thread makes, and last a list of what it wrote.
/// Rank 0's thread waits for the lists of all and commits: so the snapshot becomes durable while
/// the ranks train, whatever they do, and no thread makes a collective. No main thread waits for an
/// accelerator: its part is copied while it computes. That it is durable, or that a rank
/// failed, the ranks have to agree on, as no rank may begin the next one alone. They do so wherever
/// they agree on something anyway:
///
///     saver.save(step, part);                     // on all ranks
///     ...
///     saver.advance(maximum_of(saver.report()));  // after some steps, on all ranks; or poll()
///     ...
///     saver.finish();                             // at the end
///
/// The main threads never wait for a disk but in finish(). If a rank fails, all give the snapshot
/// up, those before stay, and the warning says why.
///
/// Hosts that share no folder get the files through a group of their own (spread_files()), and each
/// commits for itself. A rank that lost the others writes and commits its files alone
/// (save_alone()).
class SnapshotSaver {
 public:
  /// Begins no thread and writes nothing. All ranks give the same options.
  SnapshotSaver(SnapshotSaverOptions options, ProcessGroup world);
  SnapshotSaver(const SnapshotSaver&) = delete;
  SnapshotSaver& operator=(const SnapshotSaver&) = delete;

  /// Lets the threads finish what is in flight and says on stderr what they could not; never throws
  /// and makes no collective. Rank 0 waits for the others' files, but no longer than `patience`,
  /// and not at all while an exception ends the program: they may be gone.
  ~SnapshotSaver();

  /// Begins the snapshot of a step; finishes the one before first. The tensors may change as soon
  /// as this returns, but for those that SnapshotPart::stays is about. A collective.
  void save(std::int64_t step, const SnapshotPart& part);

  /// Lets accelerators change what stayed as it was, after it is copied. The host does not wait.
  void before_step() { copy_.let_writers_wait(); }

  /// True while a save is not durable yet; the same on all ranks.
  bool in_flight() const { return in_flight_; }

  /// Returns how far this rank is; all zero if nothing is in flight.
  SnapshotReport report();

  /// Goes on with the save by what all ranks reported. All ranks must call it with the same
  /// numbers: what follows from them may be a collective. Throws DivergedError, on all ranks, if
  /// what was to be saved has overflowed.
  void advance(const SnapshotReport& agreed);

  /// Does both: a collective while a save is in flight, nothing otherwise.
  void poll();

  /// Waits until nothing is in flight. A collective.
  void finish();

  /// Returns the warnings since the last call: the same on all ranks, but for what only rank 0
  /// sees.
  std::vector<std::string> take_warnings();

  /// Returns the step of the newest snapshot that this object made durable.
  std::optional<std::int64_t> last_saved() const { return last_saved_; }

  /// Returns whether this rank commits snapshots: for its host, or for all hosts.
  bool commits() const {
    return options_.hosts.are_apart() ? options_.hosts.keeps() : world_.rank() == 0;
  }

  /// Returns what the last one cost, the same on all ranks.
  std::optional<SnapshotCost> cost() const { return cost_; }

 private:
  struct Failure {
    std::string text;
    int code = 0;  // of the operating system, or kDiverged
  };

  void agree_on_folder();
  void copy(const SnapshotPart& part);
  void begin_thread();
  bool is_busy() const;
  void wait_for_thread(std::chrono::milliseconds most) const;
  void end_job();
  void work();
  void open_folder();
  std::optional<std::vector<WrittenFile>> share_files(const std::vector<OwnFile>& own);
  std::optional<std::vector<WrittenFile>> files_of_all(std::vector<WrittenFile> files) const;
  void commit(std::vector<WrittenFile> files);
  void note_failure(const std::exception_ptr& failure);
  void give_up();
  void stop_waiting();
  void say_how_it_ended();

  SnapshotSaverOptions options_;
  ProcessGroup world_;
  SnapshotFolder folder_;
  std::filesystem::path snapshots_;  // absolute: other ranks may be elsewhere
  std::filesystem::path aside_;      // in which this snapshot is written
  int exceptions_;                   // under way when this was made
  bool in_flight_ = false;
  std::int64_t step_ = 0;
  bool best_ = false;
  std::optional<PendingSnapshot> pending_;
  PartCopy copy_;
  std::string divergence_;
  std::optional<Failure> failure_;
  std::vector<std::string> warnings_;
  std::string note_;  // of rank 0's thread
  double stall_seconds_ = 0, background_seconds_ = 0;
  std::optional<SnapshotCost> cost_;
  std::optional<std::int64_t> last_saved_;
  std::atomic<bool> is_given_up_{false};
  std::atomic<bool> is_committed_{false};
  std::future<double> job_;  // the seconds of the thread; last: it ends before what it uses
};

}  // namespace lockstep
