#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <sys/types.h>
#include <vector>

#include "lockstep/core/file_descriptor.h"
#include "lockstep/liveness/own_slot.h"

namespace lockstep {

/// One rank's calls in one group, as its slot says.
struct GroupProgress {
  /// A call for whose end a thread waits.
  struct Wait {
    GroupCall call;
    std::uint64_t number = 0;  ///< among the group's collectives; 0: it is none of them

    bool operator==(const Wait&) const = default;
  };

  std::uint64_t id = 0;
  int rank = 0, size = 0;   ///< in the group
  std::uint64_t begun = 0;  ///< collectives
  GroupCall last = {};      ///< that was begun
  std::optional<Wait> wait = {};
};

/// One rank's progress, as its slot says.
struct RankProgress {
  std::optional<std::int64_t> step = {};    ///< nothing: it does not report how far it is
  bool has_stepped = false;                 ///< in this attempt
  std::uint64_t activity = 0;               ///< another number after each sign of life
  pid_t process = 0;                        ///< that has attached; 0: none has
  RescueState rescue = RescueState::kNone;  ///< if it loses its peers
  std::vector<GroupProgress> groups = {};

  /// Returns a group in which a thread waits; null: none does.
  const GroupProgress* waiting() const;
};

/// Reads a slot while its rank may be writing.
RankProgress read_progress(const ProgressSlot& slot);

/// Reads the monotonic clock in nanoseconds, the same for all processes of a host.
std::int64_t monotonic_nanoseconds() noexcept;

/// Unmaps the memory of a page.
struct ProgressUnmap {
  std::size_t size = 0;
  void operator()(void* memory) const noexcept;
};
using ProgressMemory = std::unique_ptr<void, ProgressUnmap>;

/// A page that was mapped, and the slot of one of its ranks.
struct MappedSlot {
  ProgressMemory memory;
  ProgressSlot* slot;
};

/// Maps the page of that path, at the slot of a local rank; nothing when it is not a page of this
/// user.
std::optional<MappedSlot> map_slot(const std::string& path, std::int64_t local_rank);

/// The memory in which a rank reports to the launcher that started it how far its training is.
///
///     auto page = lockstep::ProgressPage::from_environment();
///     ...
///     if (page) page->report(step);   // after each optimizer step
///
/// One thread of a process reports: a rank's step has one writer. A rank that has attached counts
/// as hung if it makes no progress for the launcher's --hang-timeout: no step, no beginning or end
/// of a call of a ProcessGroup, no sign_of_life() (own_slot.h).
class ProgressPage {
 public:
  /// Attaches to the page that LOCKSTEP_PROGRESS names, at the slot of LOCAL_RANK. Nothing when no
  /// launcher of ours started this process, or when the path is not a page of this user: nobody
  /// would read it.
  static std::optional<ProgressPage> from_environment();

  /// Writes to a slot of a page, which outlives this object.
  explicit ProgressPage(ProgressSlot& slot);

  /// Reports how many optimizer steps of the whole training are done, those before restarts
  /// included; takes nanoseconds. A number lower than an earlier one changes nothing.
  void report(std::int64_t step) noexcept {
    if (step > slot_->step.load(std::memory_order_relaxed)) {
      slot_->step.store(step, std::memory_order_relaxed);
    }
    if (first_step_ns_ == 0) note_first_step();
  }

  /// Returns the seconds from the failure before the last restart to this process's first report;
  /// nothing before that report or without a restart.
  std::optional<double> recovery_seconds() const;

 private:
  void note_first_step() noexcept;

  ProgressSlot* slot_;
  std::int64_t first_step_ns_ = 0;
};

/// The launcher's side: the page that it shares with the processes of one attempt. It has no name
/// in any file system, so nothing is left however the run ends.
class SharedProgress {
 public:
  /// Makes a page for that many local ranks. Throws std::system_error.
  explicit SharedProgress(int local_ranks);

  /// Returns the path by which other processes of this user open it, for LOCKSTEP_PROGRESS.
  std::string path() const;

  /// Returns the furthest step that any rank reported, 0 before the first; nothing when no rank
  /// attached, as in programs that do not use this page.
  std::optional<std::int64_t> furthest_step() const;

  /// Returns how far a local rank is.
  RankProgress progress(int local_rank) const;

  /// Returns the slot of a local rank, to ask it for its stack.
  ProgressSlot& slot(int local_rank);

  /// Returns when a rank did its first step, on the monotonic clock; nothing before that.
  std::optional<std::int64_t> first_step_ns() const;

 private:
  int local_ranks_;
  FileDescriptor file_;
  ProgressMemory memory_;
};

}  // namespace lockstep
