#include "lockstep/device/host_memory.h"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <sys/mman.h>
#include <unistd.h>

#include <c10/core/CPUAllocator.h>
#include <c10/util/Exception.h>

#include "lockstep/core/best_fit.h"
#include "lockstep/core/text.h"
#include "lockstep/device/alignment.h"

namespace lockstep {
namespace {

constexpr std::size_t kSmallest = 64 * 1024;
constexpr std::size_t kHugePage = 2 * 1024 * 1024;
constexpr std::size_t kWorthAsking = 16 * 1024 * 1024;  // which of a gap's pages are there

#if defined(__SANITIZE_ADDRESS__)
constexpr bool kSanitized = true;
#elif defined(__has_feature)
constexpr bool kSanitized = __has_feature(address_sanitizer) || __has_feature(memory_sanitizer);
#else
constexpr bool kSanitized = false;
#endif

/// Addresses without memory behind them: pages come with their first use.
class AddressRange {
 public:
  explicit AddressRange(std::size_t bytes) : bytes_(bytes) {
    void* const start = ::mmap(nullptr, bytes + kHugePage, PROT_READ | PROT_WRITE,
        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (start == MAP_FAILED) return;
    const auto address = reinterpret_cast<std::uintptr_t>(start);
    start_ = static_cast<char*>(start) + (rounded_up(address, kHugePage) - address);
    ::madvise(start_, bytes, MADV_HUGEPAGE);  // only a hint
  }
  AddressRange(const AddressRange&) = delete;  // it stays as long as the process
  AddressRange& operator=(const AddressRange&) = delete;

  bool is_there() const { return start_ != nullptr; }
  std::size_t bytes() const { return bytes_; }
  char* at(std::size_t offset) const { return start_ + offset; }
  bool has(const void* pointer) const {
    return start_ <= pointer && pointer < static_cast<const void*>(start_ + bytes_);
  }
  std::size_t offset_of(const void* pointer) const {
    return static_cast<std::size_t>(static_cast<const char*>(pointer) - start_);
  }

  // Gives back to the system what lies in memory between these offsets, from the end on, until it
  // is `enough`. Returns the bytes of it.
  std::size_t release(std::size_t begin, std::size_t end, std::size_t enough) const {
    std::size_t released = 0;
    begin = rounded_up(begin, kHugePage);
    for (std::size_t page = end / kHugePage; page-- > begin / kHugePage && released < enough;) {
      char* const start = at(page * kHugePage);
      const std::size_t resident = resident_bytes(start);
      if (resident > 0) ::madvise(start, kHugePage, MADV_DONTNEED);
      released += resident;
    }
    return released;
  }

 private:
  // Of a huge page, which may consist of small ones.
  static std::size_t resident_bytes(char* huge_page) {
    static const auto kPage = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
    std::array<unsigned char, kHugePage / 4096> pages = {};
    if (::mincore(huge_page, kHugePage, pages.data()) != 0) return kHugePage;
    return kPage * static_cast<std::size_t>(std::ranges::count_if(
                       pages, [](unsigned char page) { return (page & 1) != 0; }));
  }

  char* start_ = nullptr;
  std::size_t bytes_;
};

/// Note [Memory of a step].
///
/// Note [Gaps]
/// Small tensors cut into the gap that a large one left, and where it then has no room it is placed
/// behind all others: a gradient of 400 MB costs 350 more. So growth is paid for by the pages of
/// gaps, the largest first. A steady step grows no more, so that its pages stay.
class HostMemory final : public c10::Allocator {
 public:
  HostMemory(c10::Allocator& others, std::size_t bytes)
      : others_(others), range_(bytes), parts_(bytes) {}

  bool is_there() const { return range_.is_there(); }

  c10::DataPtr allocate(std::size_t size) override {
    char* const data = size < kSmallest ? nullptr : take(size);
    if (data == nullptr) return others_.allocate(size);
    c10::profiledCPUMemoryReporter().New(data, size);
    return {data, data, give_back, c10::Device(c10::DeviceType::CPU)};
  }

  c10::DeleterFnPtr raw_deleter() const override { return give_back; }

  void copy_data(void* to, const void* from, std::size_t count) const override {
    default_copy_data(to, from, count);
  }

  void release();

 private:
  char* take(std::size_t size) {
    const std::lock_guard lock(mutex_);
    const auto start = parts_.take(rounded_up(size, std::size_t{kTensorAlignment}));
    if (parts_.end() > touched_) grow_to(parts_.end());
    return start ? range_.at(*start) : nullptr;
  }

  // Note [Gaps].
  void grow_to(std::size_t end) {
    owed_ += end - touched_;
    touched_ = end;
    if (owed_ < kWorthAsking) return;
    const auto& gaps = parts_.gaps_by_size();
    for (auto gap = gaps.rbegin(); gap != gaps.rend() && owed_ > 0; ++gap)
      owed_ -= std::min(owed_, range_.release(gap->second, gap->second + gap->first, owed_));
    owed_ = 0;
  }
  static void give_back(void* data);

  c10::Allocator& others_;
  AddressRange range_;
  std::mutex mutex_;
  BestFit parts_;
  std::size_t touched_ = 0;  // the highest end so far
  std::size_t owed_ = 0;     // of the growth since gaps were last released
};

HostMemory* installed = nullptr;

// Small blocks pass here too, if they were allocated without a DataPtr.
void HostMemory::give_back(void* data) {
  if (!installed->range_.has(data)) return installed->others_.raw_deleter()(data);
  c10::profiledCPUMemoryReporter().Delete(data);
  const std::lock_guard lock(installed->mutex_);
  installed->parts_.give_back(installed->range_.offset_of(data));
}

void HostMemory::release() {
  const std::lock_guard lock(mutex_);
  for (const auto& [start, size] : parts_.gaps()) range_.release(start, start + size, size);
  range_.release(parts_.end(), touched_, touched_);
  touched_ = parts_.end();
}

std::size_t bytes_of_machine() {
  return static_cast<std::size_t>(::sysconf(_SC_PHYS_PAGES)) *
         static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
}

bool is_wanted() {
  const char* const whose = std::getenv("LOCKSTEP_HOST_MEMORY");
  return !kSanitized && (whose == nullptr || std::string_view(whose) != "libtorch");
}

void install() {
  if (!is_wanted()) return;
  auto memory = std::make_unique<HostMemory>(
      *c10::GetCPUAllocator(), rounded_up(bytes_of_machine(), kHugePage));
  if (!memory->is_there()) return;
  installed = memory.release();  // tensors may outlive main()
  c10::SetCPUAllocator(installed);
}

constexpr const char* kHelp =
    "; take a smaller --batch-size (--grad-accum-steps keeps the step's), --precision bf16-mixed, "
    "or spread the model: --parallel pp";

// The host's allocator has no type of its own for it.
bool is_of_host(const std::string& text) {
  return text.find("DefaultCPUAllocator: can't allocate memory") != std::string::npos;
}

std::optional<MemoryError> inside_of(const std::exception& outer) {
  try {
    std::rethrow_if_nested(outer);
    return std::nullopt;
  } catch (const std::exception& inner) {
    return as_memory_error(inner);
  }
}

}  // namespace

void keep_host_memory() {
  static std::once_flag once;
  std::call_once(once, install);
}

void release_host_memory() {
  if (installed != nullptr) installed->release();
}

// A pipeline names the stage around LibTorch's own.
std::optional<MemoryError> as_memory_error(const std::exception& error) {
  const auto* const own = dynamic_cast<const c10::Error*>(&error);
  if (own == nullptr) return inside_of(error);
  const std::string text = own->what_without_backtrace();
  const bool is_memory = dynamic_cast<const c10::OutOfMemoryError*>(own) != nullptr;
  if (!is_memory && !is_of_host(text)) return std::nullopt;
  return MemoryError(concat("out of memory: ", first_line(text), kHelp));
}

}  // namespace lockstep
