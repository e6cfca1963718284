#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>

#include <c10/util/ThreadLocalDebugInfo.h>

namespace lockstep {

/// How many bytes of tensors are alive, and how many were at most.
struct MemoryUse {
  std::int64_t live = 0;
  std::int64_t peak = 0;

  friend bool operator==(const MemoryUse&, const MemoryUse&) = default;
};

/// Counts the bytes of tensors that are allocated while it lives, on any device, by this thread and
/// by those that take over its modes (see ThreadModes), as the stages of a Pipeline do.
///
/// Each thread is known by its name, which a PlaceWorker gave it. A tensor counts for the thread
/// that allocated it until it is freed, whoever frees it. One that is freed where the meter does
/// not look, by a thread without its modes, counts on until its memory is allocated again. LibTorch
/// has one such place for a profiler: the innermost meter alone sees allocations.
///
///     lockstep::MemoryMeter meter;
///     pipeline.step(images, labels, loss);
///     meter.by_thread()["stage 0"].peak;   // bytes
class MemoryMeter {
 public:
  MemoryMeter();

  /// Tells of all threads together. The peak is that of the sum, not the sum of the peaks.
  MemoryUse total() const;

  /// Tells of each thread that has allocated.
  std::map<std::string, MemoryUse> by_thread() const;

  /// Lets the peaks begin anew from what is alive now.
  void reset_peaks();

 private:
  class Reports;

  std::shared_ptr<Reports> reports_;
  c10::DebugInfoGuard guard_;
};

}  // namespace lockstep
