#include "lockstep/formats/mapped_file.h"

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <mutex>
#include <sys/mman.h>
#include <unistd.h>

#include "lockstep/formats/byte_fields.h"
#include "lockstep/formats/input_file.h"

namespace lockstep {

// Note [Lost pages]: the kernel sends SIGBUS to a thread that reads a mapped page which its file no
// longer has. The handler puts zeros in the place of all that follows, and marks the range; whoever
// reads asks afterwards. The list of ranges only grows and its nodes are used again, so that the
// handler can walk it whatever the other threads do. A range cannot go while one of them reads it.
struct GuardedRange {
  std::atomic<std::uintptr_t> begin{0}, end{0};  ///< both 0: unused
  std::atomic<bool> is_broken{false};
  GuardedRange* next = nullptr;
};

namespace {

std::atomic<GuardedRange*> ranges{nullptr};
std::uintptr_t page_bytes = 0;
struct sigaction earlier_action {};

// Only what a signal handler may do: atomics, and mmap(), which is a bare call of the kernel.
bool replace_lost_pages(std::uintptr_t address) {
  for (GuardedRange* range = ranges.load(); range != nullptr; range = range->next) {
    const std::uintptr_t end = range->end.load();
    if (address < range->begin.load() || address >= end) continue;
    const std::uintptr_t page = address / page_bytes * page_bytes;
    constexpr int kFlags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED;
    void* const zeros = ::mmap(reinterpret_cast<void*>(page), end - page, PROT_READ, kFlags, -1,
        0);  // NOLINT(performance-no-int-to-ptr)
    range->is_broken.store(true);
    return zeros != MAP_FAILED;
  }
  return false;
}

void pass_on(int signal, siginfo_t* info, void* context) {
  if ((earlier_action.sa_flags & SA_SIGINFO) != 0) {
    earlier_action.sa_sigaction(signal, info, context);
  } else if (earlier_action.sa_handler != SIG_DFL && earlier_action.sa_handler != SIG_IGN) {
    earlier_action.sa_handler(signal);
  } else {
    // Ends the process as if we had never been there, once this handler has returned.
    ::signal(signal, SIG_DFL);
    ::raise(signal);
  }
}

void on_lost_page(int signal, siginfo_t* info, void* context) {
  const int error = errno;
  const bool is_fault = info->si_code > 0;  // else somebody sent it
  const bool is_ours =
      is_fault && replace_lost_pages(reinterpret_cast<std::uintptr_t>(info->si_addr));
  if (!is_ours) pass_on(signal, info, context);
  errno = error;
}

void take_signal_once() {
  static const bool kTaken = [] {
    page_bytes = static_cast<std::uintptr_t>(::sysconf(_SC_PAGESIZE));
    struct sigaction action {};
    action.sa_sigaction = on_lost_page;
    action.sa_flags = SA_SIGINFO | SA_ONSTACK | SA_RESTART;
    ::sigemptyset(&action.sa_mask);
    return ::sigaction(SIGBUS, &action, &earlier_action) == 0;
  }();
  if (!kTaken) throw_errno("take SIGBUS for mapped files");
}

GuardedRange* unused_range() {
  for (GuardedRange* range = ranges.load(); range != nullptr; range = range->next)
    if (range->end.load() == 0) return range;
  auto* const made = new GuardedRange;  // for ever: the handler may look at it at any time
  made->next = ranges.load();
  ranges.store(made);
  return made;
}

std::mutex& ranges_mutex() {
  static std::mutex mutex;
  return mutex;
}

GuardedRange* guard(const void* start, std::size_t size) {
  take_signal_once();
  const std::lock_guard<std::mutex> lock(ranges_mutex());
  GuardedRange* const range = unused_range();
  range->is_broken.store(false);
  range->begin.store(reinterpret_cast<std::uintptr_t>(start));
  range->end.store(range->begin.load() + size);
  return range;
}

void release(GuardedRange* range) {
  const std::lock_guard<std::mutex> lock(ranges_mutex());
  range->begin.store(0);
  range->end.store(0);
}

bool is_same_time(const timespec& one, const timespec& other) {
  return one.tv_sec == other.tv_sec && one.tv_nsec == other.tv_nsec;
}

}  // namespace

MappedFile::MappedFile(const std::filesystem::path& path)
    : name_(path.string()), file_(open_regular_file(path)) {
  if (::fstat(file_.get(), &opened_) != 0) throw_errno("fstat", name_);
  const auto size = static_cast<std::size_t>(opened_.st_size);
  if (size == 0) return;  // the kernel maps no empty files
  void* start = ::mmap(nullptr, size, PROT_READ, MAP_PRIVATE, file_.get(), 0);
  if (start == MAP_FAILED) throw_errno("mmap", name_);
  bytes_ = {static_cast<const std::uint8_t*>(start), size};
  range_ = guard(start, size);
}

MappedFile::~MappedFile() {
  if (bytes_.empty()) return;
  ::munmap(const_cast<std::uint8_t*>(bytes_.data()), bytes_.size());
  release(range_);
}

void MappedFile::require_unchanged() const {
  struct stat now {};
  if (::fstat(file_.get(), &now) != 0) throw_errno("fstat", name_);
  const auto size = static_cast<std::uint64_t>(now.st_size);
  if (size != bytes_.size()) {
    refuse_at(name_, std::min<std::uint64_t>(size, bytes_.size()),
        "another program changed the file while it was read, from ", bytes_.size(), " to ", size,
        " bytes; try again when it is complete");
  }
  const bool is_broken = range_ != nullptr && range_->is_broken.load();
  if (is_broken || !is_same_time(now.st_mtim, opened_.st_mtim)) {
    refuse_at(name_, 0,
        "another program wrote to the file, or the disk lost a part of it, while it was read; try "
        "again when it is complete");
  }
}

}  // namespace lockstep
