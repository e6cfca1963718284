#include "lockstep/liveness/progress_page.h"

#include <algorithm>
#include <ctime>
#include <fcntl.h>
#include <new>
#include <span>
#include <sys/mman.h>
#include <sys/stat.h>
#include <system_error>
#include <unistd.h>
#include <utility>

#include "lockstep/core/environment.h"
#include "lockstep/core/error.h"
#include "lockstep/liveness/own_slot.h"

namespace lockstep {
namespace {

constexpr auto kRelaxed = std::memory_order_relaxed;

GroupProgress read_group(const GroupSlot& slot, std::uint64_t id) {
  const std::uint64_t place = slot.place.load(kRelaxed);
  GroupProgress group{.id = id,
      .rank = static_cast<int>(place >> 32U),
      .size = static_cast<int>(place & 0xffffffffU),
      .begun = slot.begun.load(kRelaxed),
      .last = GroupCall::of_word(slot.last.load(kRelaxed))};
  if (slot.waits.load(std::memory_order_acquire) > 0)
    group.wait = {
        GroupCall::of_word(slot.waited.load(kRelaxed)), slot.waited_number.load(kRelaxed)};
  return group;
}

constexpr std::uint64_t kMagic = 0x32474f5250534cULL;  // "LSPROG2", the 2 is the version
constexpr int kSeals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;

// What a page begins with; the slots follow.
struct alignas(64) Header {
  std::uint64_t magic = 0;
  std::int64_t slots = 0;
};

std::size_t size_for(std::int64_t slots) {
  return sizeof(Header) + static_cast<std::size_t>(slots) * sizeof(ProgressSlot);
}

Header* header_of(const ProgressMemory& memory) { return static_cast<Header*>(memory.get()); }

ProgressSlot* slots_of(const ProgressMemory& memory) {
  return reinterpret_cast<ProgressSlot*>(header_of(memory) + 1);
}

// By our own count: any rank could overwrite the one in the page.
std::span<ProgressSlot> slots(const ProgressMemory& memory, int count) {
  return {slots_of(memory), static_cast<std::size_t>(count)};
}

FileDescriptor make_file(std::size_t size) {
  FileDescriptor file(::memfd_create("lockstep-progress", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!file) throw_errno("launch: make the ranks' progress page");
  // Sealed, so that nobody who has mapped it can be hit by SIGBUS.
  if (::ftruncate(file.get(), static_cast<off_t>(size)) != 0 ||
      ::fcntl(file.get(), F_ADD_SEALS, kSeals) != 0) {
    throw_errno("launch: size the ranks' progress page");
  }
  return file;
}

/// Returns the size of what may be a page: a sealed memfd of this user that has room for a header.
std::optional<std::size_t> size_of_page(const FileDescriptor& file) {
  struct stat facts {};
  if (!file || ::fstat(file.get(), &facts) != 0) return std::nullopt;
  if (!S_ISREG(facts.st_mode) || facts.st_uid != ::geteuid()) return std::nullopt;
  if (::fcntl(file.get(), F_GET_SEALS) != kSeals) return std::nullopt;
  const auto size = static_cast<std::size_t>(facts.st_size);
  return size < sizeof(Header) ? std::nullopt : std::optional(size);
}

/// Maps all of the file, writable. Throws std::system_error.
ProgressMemory map(const FileDescriptor& file, std::size_t size) {
  void* memory = ::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED, file.get(), 0);
  if (memory == MAP_FAILED) throw_errno("map the ranks' progress page");
  return {memory, ProgressUnmap{size}};
}

}  // namespace

const GroupProgress* RankProgress::waiting() const {
  const auto found = std::find_if(
      groups.begin(), groups.end(), [](const GroupProgress& group) { return group.wait; });
  return found == groups.end() ? nullptr : &*found;
}

RankProgress read_progress(const ProgressSlot& slot) {
  RankProgress progress;
  const std::int64_t step = slot.step.load(kRelaxed);
  if (step >= 0) progress.step = step;
  progress.has_stepped = slot.first_step_ns.load(kRelaxed) > 0;
  progress.activity = static_cast<std::uint64_t>(step) + slot.signs.load(kRelaxed);
  progress.rescue = slot.rescue.load(kRelaxed);
  progress.process = slot.process.load(std::memory_order_acquire);
  for (const GroupSlot& group : slot.groups) {
    progress.activity += group.begun.load(kRelaxed) + group.events.load(kRelaxed);
    if (const std::uint64_t id = group.id.load(std::memory_order_acquire))
      progress.groups.push_back(read_group(group, id));
  }
  return progress;
}

std::int64_t monotonic_nanoseconds() noexcept {
  timespec now{};
  ::clock_gettime(CLOCK_MONOTONIC, &now);
  return std::int64_t{now.tv_sec} * 1'000'000'000 + now.tv_nsec;
}

void ProgressUnmap::operator()(void* memory) const noexcept { ::munmap(memory, size); }

ProgressPage::ProgressPage(ProgressSlot& slot) : slot_(&slot) {
  if (slot.step.load(kRelaxed) < 0) slot.step.store(0, kRelaxed);
}

std::optional<ProgressPage> ProgressPage::from_environment() {
  ProgressSlot* const slot = own_slot();
  return slot == nullptr ? std::nullopt : std::optional(ProgressPage(*slot));
}

std::optional<MappedSlot> map_slot(const std::string& path, std::int64_t local_rank) {
  // A variable that outlived its launcher may name any file by now, even one that would block.
  const FileDescriptor file(::open(path.c_str(), O_RDWR | O_CLOEXEC | O_NONBLOCK));
  const auto size = size_of_page(file);
  if (!size) return std::nullopt;
  try {
    ProgressMemory memory = map(file, *size);
    const Header* header = header_of(memory);
    if (header->magic != kMagic || local_rank < 0 || local_rank >= header->slots) {
      return std::nullopt;
    }
    if (*size != size_for(header->slots)) return std::nullopt;
    ProgressSlot* slot = slots_of(memory) + local_rank;
    return MappedSlot{std::move(memory), slot};
  } catch (const std::system_error&) {
    return std::nullopt;
  }
}

void ProgressPage::note_first_step() noexcept {
  first_step_ns_ = monotonic_nanoseconds();
  if (slot_->first_step_ns.load(kRelaxed) == 0)
    slot_->first_step_ns.store(first_step_ns_, kRelaxed);
}

std::optional<double> ProgressPage::recovery_seconds() const {
  const auto death = environment_number("LOCKSTEP_DEATH_NS");
  if (!death || first_step_ns_ == 0) return std::nullopt;
  return static_cast<double>(first_step_ns_ - *death) * 1e-9;
}

SharedProgress::SharedProgress(int local_ranks)
    : local_ranks_(local_ranks),
      file_(make_file(size_for(local_ranks))),
      memory_(map(file_, size_for(local_ranks))) {
  for (int rank = 0; rank < local_ranks_; ++rank) new (slots_of(memory_) + rank) ProgressSlot;
  new (header_of(memory_)) Header{kMagic, local_ranks_};
}

std::string SharedProgress::path() const {
  return concat("/proc/", ::getpid(), "/fd/", file_.get());
}

std::optional<std::int64_t> SharedProgress::furthest_step() const {
  std::int64_t furthest = -1;
  for (const ProgressSlot& slot : slots(memory_, local_ranks_))
    furthest = std::max(furthest, slot.step.load(kRelaxed));
  return furthest < 0 ? std::nullopt : std::optional(furthest);
}

RankProgress SharedProgress::progress(int local_rank) const {
  return read_progress(slots_of(memory_)[local_rank]);
}

ProgressSlot& SharedProgress::slot(int local_rank) { return slots_of(memory_)[local_rank]; }

std::optional<std::int64_t> SharedProgress::first_step_ns() const {
  std::optional<std::int64_t> first;
  for (const ProgressSlot& slot : slots(memory_, local_ranks_)) {
    const std::int64_t time = slot.first_step_ns.load(kRelaxed);
    if (time > 0) first = first ? std::min(*first, time) : time;
  }
  return first;
}

}  // namespace lockstep
