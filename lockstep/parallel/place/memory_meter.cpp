#include "lockstep/parallel/place/memory_meter.h"

#include <algorithm>
#include <array>
#include <mutex>
#include <pthread.h>
#include <unordered_map>

#include <c10/core/Allocator.h>

namespace lockstep {
namespace {

// Asked each time: a thread may be renamed, and its number may be another's later.
std::string name_of_this_thread() {
  std::array<char, 16> name = {};  // the kernel's limit
  ::pthread_getname_np(::pthread_self(), name.data(), name.size());
  return name.data();
}

void add(MemoryUse& use, std::int64_t bytes) {
  use.live += bytes;
  use.peak = std::max(use.peak, use.live);
}

}  // namespace

class MemoryMeter::Reports : public c10::MemoryReportingInfoBase {
 public:
  void reportMemoryUsage(void* pointer, std::int64_t size, std::size_t /*total_allocated*/,
      std::size_t /*total_reserved*/, c10::Device /*device*/) override {
    const std::lock_guard lock(mutex_);
    // An address that is allocated again was freed where nobody reported it.
    forget(pointer);
    if (size > 0) remember(pointer, size);
  }

  bool memoryProfilingEnabled() const override { return true; }

  MemoryUse total() const {
    const std::lock_guard lock(mutex_);
    return total_;
  }

  std::map<std::string, MemoryUse> by_thread() const {
    const std::lock_guard lock(mutex_);
    return threads_;
  }

  void reset_peaks() {
    const std::lock_guard lock(mutex_);
    total_.peak = total_.live;
    for (auto& [name, use] : threads_) use.peak = use.live;
  }

 private:
  struct Block {
    MemoryUse* thread = nullptr;
    std::int64_t bytes = 0;
  };

  void remember(void* pointer, std::int64_t bytes) {
    MemoryUse& thread = threads_[name_of_this_thread()];  // a map's values stay where they are
    add(thread, bytes);
    add(total_, bytes);
    blocks_[pointer] = {&thread, bytes};
  }

  // What was allocated before the meter was there is not known and not counted.
  void forget(void* pointer) {
    const auto found = blocks_.find(pointer);
    if (found == blocks_.end()) return;
    add(*found->second.thread, -found->second.bytes);
    add(total_, -found->second.bytes);
    blocks_.erase(found);
  }

  mutable std::mutex mutex_;
  MemoryUse total_;
  std::map<std::string, MemoryUse> threads_;
  std::unordered_map<void*, Block> blocks_;
};

MemoryMeter::MemoryMeter()
    : reports_(std::make_shared<Reports>()), guard_(c10::DebugInfoKind::PROFILER_STATE, reports_) {}

MemoryUse MemoryMeter::total() const { return reports_->total(); }

std::map<std::string, MemoryUse> MemoryMeter::by_thread() const { return reports_->by_thread(); }

void MemoryMeter::reset_peaks() { reports_->reset_peaks(); }

}  // namespace lockstep
