#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

#include "lockstep/core/file_descriptor.h"

namespace lockstep {

/// Reads the monotonic clock in nanoseconds, the same for all processes of a host.
std::int64_t monotonic_nanoseconds() noexcept;

/// Is what one process says in its part of a progress page; each part has one writer.
struct alignas(64) ProgressSlot {
  std::atomic<std::int64_t> step{-1};  ///< the furthest; 0: none yet, -1: nobody writes here
  std::atomic<std::int64_t> first_step_ns{0};  ///< when this process did its first step; 0: not yet
};

/// Owns a mapping of a page's memory.
class ProgressMemory {
 public:
  ProgressMemory() = default;
  /// Maps all of the file, writable. Throws std::system_error.
  ProgressMemory(const FileDescriptor& file, std::size_t size);
  ProgressMemory(ProgressMemory&& other) noexcept;
  ProgressMemory& operator=(ProgressMemory&& other) noexcept;
  ~ProgressMemory();

  void* data() const { return data_; }

 private:
  void* data_ = nullptr;
  std::size_t size_ = 0;
};

/// Is the memory by which a rank tells the launcher that started it how far its training has come.
///
///     auto page = lockstep::ProgressPage::from_environment();
///     ...
///     if (page) page->report(step);   // after each optimizer step
///
/// One thread of a process reports: a rank's part has one writer.
class ProgressPage {
 public:
  /// Attaches to the page that LOCKSTEP_PROGRESS names, at the part of LOCAL_RANK. Nothing when no
  /// launcher of ours started this process, or when what is named is no page of this user: that is
  /// no error, as nobody reads it then.
  static std::optional<ProgressPage> from_environment();

  /// Attaches to the page of that path, at the part of a local rank; nothing as above.
  static std::optional<ProgressPage> attach(const std::string& path, std::int64_t local_rank);

  /// Says that so many optimizer steps of the whole training are done, those of earlier lives
  /// included; costs nanoseconds. A number lower than an earlier one changes nothing.
  void report(std::int64_t step) noexcept {
    if (step > slot_->step.load(std::memory_order_relaxed)) {
      slot_->step.store(step, std::memory_order_relaxed);
    }
    if (first_step_ns_ == 0) note_first_step();
  }

  /// Gives the seconds from the death that ended the life before this one to this process's first
  /// report. Nothing before that, and in a first life.
  std::optional<double> recovery_seconds() const;

 private:
  ProgressPage(ProgressMemory memory, ProgressSlot* slot);

  void note_first_step() noexcept;

  ProgressMemory memory_;
  ProgressSlot* slot_;
  std::int64_t first_step_ns_ = 0;
};

/// Is the launcher's side: the page that it shares with the processes of one life of a group. It
/// has no name in any file system, so that nothing is left however the run ends.
class SharedProgress {
 public:
  /// Makes a page for so many local ranks. Throws std::system_error.
  explicit SharedProgress(int local_ranks);

  /// Gives the path by which other processes of this user open it, for LOCKSTEP_PROGRESS.
  std::string path() const;

  /// Gives the furthest step that any rank reported, 0 before the first; nothing when no rank ever
  /// attached, as in programs that know nothing of this.
  std::optional<std::int64_t> furthest_step() const;

  /// Gives the time of the first step that a rank did, on the monotonic clock; nothing before it.
  std::optional<std::int64_t> first_step_ns() const;

 private:
  int local_ranks_;
  FileDescriptor file_;
  ProgressMemory memory_;
};

}  // namespace lockstep
