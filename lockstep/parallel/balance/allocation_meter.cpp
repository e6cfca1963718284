#include "lockstep/parallel/balance/allocation_meter.h"

#include <atomic>

#include <c10/core/Allocator.h>

namespace lockstep {

// An operator's own threads may report as well, hence the atomic.
class AllocationMeter::Reports : public c10::MemoryReportingInfoBase {
 public:
  void reportMemoryUsage(
      void* /*pointer*/, std::int64_t size, std::size_t /*total_allocated*/,
      std::size_t /*total_reserved*/, c10::Device /*device*/) override {
    live_ += size;  // negative when freed
  }

  bool memoryProfilingEnabled() const override { return true; }

  std::int64_t live() const { return live_; }

 private:
  std::atomic<std::int64_t> live_ = 0;
};

AllocationMeter::AllocationMeter()
    : reports_(std::make_shared<Reports>()), guard_(c10::DebugInfoKind::PROFILER_STATE, reports_) {}

std::int64_t AllocationMeter::live_bytes() const { return reports_->live(); }

}  // namespace lockstep
