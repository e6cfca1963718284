#include "lockstep/liveness/own_slot.h"

#include <cerrno>
#include <charconv>
#include <climits>
#include <cstring>
#include <execinfo.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <mutex>
#include <signal.h>
#include <string_view>
#include <sys/syscall.h>
#include <ucontext.h>
#include <unistd.h>
#include <utility>

#include "lockstep/core/environment.h"
#include "lockstep/liveness/progress_page.h"

namespace lockstep {
namespace {

// A program that a rank starts has the rank's variables, and is not the rank.
bool is_free(const ProgressSlot& slot) {
  const pid_t holder = slot.process.load(std::memory_order_acquire);
  return holder == 0 || holder == ::getpid() || (::kill(holder, 0) != 0 && errno == ESRCH);
}

// Never unmapped: threads may write to it until the process has ended.
ProgressSlot* attach_for_life() {
  const auto path = environment("LOCKSTEP_PROGRESS");
  if (!path) return nullptr;
  auto mapped = map_slot(*path, environment_count("LOCAL_RANK").value_or(0));
  if (!mapped || !is_free(*mapped->slot)) return nullptr;
  static_cast<void>(mapped->memory.release());
  ProgressSlot* const slot = mapped->slot;
  if (answer_for_stack(*slot, *path))
    slot->stack_signal.store(stack_signal(), std::memory_order_relaxed);
  slot->process.store(::getpid(), std::memory_order_release);
  attached_slot.store(slot, std::memory_order_release);
  return slot;
}

constexpr int kMostFrames = 64;

ProgressSlot* answering = nullptr;
char folder_of_files[64] = "";  // `/proc/PID/fd/` of the launcher

// What follows is called in a signal's handler: neither memory nor locks are taken.
char* append(char* to, std::string_view text) {
  return static_cast<char*>(std::memcpy(to, text.data(), text.size())) + text.size();
}

char* append_number(char* to, char* end, long number) { return std::to_chars(to, end, number).ptr; }

int open_file(int number) {
  char path[96];
  char* end = append(path, folder_of_files);
  end = append_number(end, path + sizeof(path) - 1, number);
  *end = '\0';
  return ::open(path, O_WRONLY | O_APPEND | O_CLOEXEC);
}

// Where the thread was interrupted; null where we do not know the processor.
void* interrupted_at(const void* context) {
  [[maybe_unused]] const auto& registers = static_cast<const ucontext_t*>(context)->uc_mcontext;
#if defined(__x86_64__)
  return reinterpret_cast<void*>(registers.gregs[REG_RIP]);
#elif defined(__aarch64__)
  return reinterpret_cast<void*>(registers.pc);
#else
  return nullptr;
#endif
}

// From where it was interrupted: the frames before are our own.
void write_stack(int file, void* start) {
  char line[32];
  char* end = append(line, "thread ");
  end = append_number(end, line + sizeof(line) - 1, ::syscall(SYS_gettid));
  *end++ = '\n';
  if (::write(file, line, static_cast<std::size_t>(end - line)) < 0) return;
  void* frames[kMostFrames];
  const int count = ::backtrace(frames, kMostFrames);
  int first = 0;
  while (first < count && frames[first] != start) ++first;
  if (first == count) first = 0;
  ::backtrace_symbols_fd(frames + first, count - first, file);
}

void on_question(int, siginfo_t*, void* context) {
  const int before = errno;
  const int file = open_file(answering->stack_file.load(std::memory_order_acquire));
  if (file >= 0) {
    write_stack(file, interrupted_at(context));
    ::close(file);
  }
  answering->answers.fetch_add(1, std::memory_order_release);
  ::syscall(SYS_futex, &answering->answers, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
  errno = before;
}

bool is_unhandled(int signal) {
  struct sigaction present {};
  return ::sigaction(signal, nullptr, &present) == 0 && present.sa_handler == SIG_DFL;
}

// The first call loads a library and takes memory.
void warm_up() {
  void* frame = nullptr;
  ::backtrace(&frame, 1);
}

}  // namespace

ProgressSlot* own_slot() {
  static std::mutex attaching;
  const std::lock_guard lock(attaching);
  ProgressSlot* const slot = attached_slot.load(std::memory_order_acquire);
  return slot != nullptr ? slot : attach_for_life();
}

int stack_signal() { return SIGRTMAX - 6; }

bool answer_for_stack(ProgressSlot& slot, const std::string& page) {
  const std::string folder = page.substr(0, page.rfind('/') + 1);
  if (!is_unhandled(stack_signal()) || folder.size() >= sizeof(folder_of_files)) return false;
  std::strcpy(folder_of_files, folder.c_str());
  answering = &slot;
  warm_up();
  struct sigaction action {};
  action.sa_sigaction = on_question;
  action.sa_flags = SA_RESTART | SA_ONSTACK | SA_SIGINFO;
  ::sigfillset(&action.sa_mask);
  return ::sigaction(stack_signal(), &action, nullptr) == 0;
}

namespace {

std::uint64_t packed_place(int rank, int size) {
  return static_cast<std::uint64_t>(rank) << 32U | static_cast<std::uint32_t>(size);
}

// The count of waiting threads stays: whoever still waits will take itself off.
void forget_calls(GroupSlot& slot) {
  for (auto* word : {&slot.last, &slot.waited, &slot.waited_number})
    word->store(0, std::memory_order_relaxed);
}

GroupSlot* take_slot(ProgressSlot& process, std::uint64_t id, std::uint64_t place) {
  for (std::size_t i = 0; i + 1 < ProgressSlot::kGroups; ++i) {
    GroupSlot& slot = process.groups[i];
    std::uint64_t free = 0;
    if (!slot.id.compare_exchange_strong(free, kOtherGroups, std::memory_order_relaxed)) continue;
    forget_calls(slot);
    slot.begun.store(0, std::memory_order_relaxed);
    slot.place.store(place, std::memory_order_relaxed);
    slot.id.store(id, std::memory_order_release);
    return &slot;
  }
  GroupSlot& shared = process.groups.back();
  shared.id.store(kOtherGroups, std::memory_order_relaxed);
  return &shared;
}

// SplitMix64's last step: equal numbers on all ranks, and hardly ever those of another group.
std::uint64_t mixed(std::uint64_t value) {
  value = (value ^ (value >> 30U)) * 0xbf58476d1ce4e5b9ULL;
  value = (value ^ (value >> 27U)) * 0x94d049bb133111ebULL;
  return value ^ (value >> 31U);
}

}  // namespace

GroupRecord::GroupRecord(ProgressSlot* process, std::uint64_t id, int rank, int size) : id_(id) {
  if (process != nullptr) slot_ = take_slot(*process, id, packed_place(rank, size));
}

GroupRecord::GroupRecord(GroupRecord&& other) noexcept
    : slot_(std::exchange(other.slot_, nullptr)), id_(other.id_) {}

// That the group has gone is an event: the sum of all counts must not go back to what it was.
GroupRecord::~GroupRecord() {
  if (slot_ == nullptr || slot_->id.load(std::memory_order_relaxed) == kOtherGroups) return;
  slot_->events.fetch_add(
      slot_->begun.exchange(0, std::memory_order_relaxed) + 1, std::memory_order_relaxed);
  forget_calls(*slot_);
  slot_->id.store(0, std::memory_order_release);
}

GroupRecord GroupRecord::part(
    ProgressSlot* process, int count, int first, int rank, int size) const {
  const std::uint64_t id = mixed(id_ + mixed(packed_place(count, first) + kOtherGroups));
  return {process, id <= kOtherGroups ? id + kOtherGroups + 1 : id, rank, size};
}

}  // namespace lockstep
