#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>

#include <c10/util/ThreadLocalDebugInfo.h>

namespace lockstep {

/// The bytes of tensors that are alive, and the highest number of them so far.
struct MemoryUse {
  std::int64_t live = 0;
  std::int64_t peak = 0;

  friend bool operator==(const MemoryUse&, const MemoryUse&) = default;
};

/// A count of the bytes of tensors that are allocated while it exists, on any device, by this
/// thread and by those that take over its modes (see ThreadModes), as the stages of a Pipeline do.
///
/// Threads go by their names, which a PlaceWorker sets. A tensor counts for the thread that
/// allocated it until any thread frees it; one that is freed by a thread without the meter's modes
/// counts until its memory is allocated again. LibTorch has one such place for a profiler: only the
/// innermost meter sees allocations.
///
///     lockstep::MemoryMeter meter;
///     pipeline.step(images, labels, loss);
///     meter.by_thread()["stage 0"].peak;   // bytes
class MemoryMeter {
 public:
  MemoryMeter();

  /// Returns the use of all threads together. The peak is that of the sum, not the sum of the
  /// peaks.
  MemoryUse total() const;

  /// Returns the use of each thread that has allocated.
  std::map<std::string, MemoryUse> by_thread() const;

  /// Restarts the peaks from what is alive now.
  void reset_peaks();

 private:
  class Reports;

  std::shared_ptr<Reports> reports_;
  c10::DebugInfoGuard guard_;
};

}  // namespace lockstep
