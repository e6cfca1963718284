#pragma once

#include <cstdint>
#include <memory>

#include <c10/util/ThreadLocalDebugInfo.h>

namespace lockstep {

/// Counts the bytes of tensors that this thread allocates while it lives, on any device, as
/// LibTorch's allocators report them to its profiler. A profiler that runs does not see them.
class AllocationMeter {
 public:
  AllocationMeter();

  /// Is what was allocated and is not yet freed.
  std::int64_t live_bytes() const;

 private:
  class Reports;

  std::shared_ptr<Reports> reports_;
  c10::DebugInfoGuard guard_;
};

}  // namespace lockstep
