#include "lockstep/comm/host/shared_region.h"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <climits>
#include <cstring>
#include <ctime>
#include <fcntl.h>
#include <linux/futex.h>
#include <random>
#include <sstream>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <thread>
#include <unistd.h>
#include <utility>

#include "lockstep/core/error.h"
#include "lockstep/core/text.h"

namespace lockstep::host {

Mapping::Mapping(int flags, int descriptor, std::size_t bytes) : bytes_(bytes) {
  void* address = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, flags, descriptor, 0);
  if (address == MAP_FAILED) throw_errno(concat("map ", bytes, " bytes of shared memory"));
  data_ = static_cast<std::byte*>(address);
}

Mapping Mapping::anonymous(std::size_t bytes) {
  return Mapping(MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1, bytes);
}

Mapping Mapping::shared(const FileDescriptor& file, std::size_t bytes) {
  return Mapping(MAP_SHARED | MAP_NORESERVE, file.get(), bytes);
}

Mapping::Mapping(Mapping&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), bytes_(std::exchange(other.bytes_, 0)) {}

Mapping& Mapping::operator=(Mapping&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(bytes_, other.bytes_);
  return *this;
}

Mapping::~Mapping() {
  if (data_ != nullptr) ::munmap(data_, bytes_);
}

namespace {

std::string random_label() {
  std::random_device device;
  return concat("lockstep-", std::hex, device(), "-", device());
}

std::string own_path(const FileDescriptor& file) { return concat("/proc/self/fd/", file.get()); }

// The kernel's own word for what was opened, whatever path led there.
std::string target_of(const FileDescriptor& file) {
  char target[256];
  const auto length = ::readlink(own_path(file).c_str(), target, sizeof(target));
  return {target, static_cast<std::size_t>(std::max<ssize_t>(length, 0))};
}

bool is_own_memory(const FileDescriptor& file, const std::string& label, std::size_t bytes) {
  struct stat status {};
  return ::fstat(file.get(), &status) == 0 && status.st_uid == ::geteuid() &&
         static_cast<std::size_t>(status.st_size) >= bytes &&
         target_of(file) == concat("/memfd:", label, " (deleted)");
}

}  // namespace

std::size_t size_of(const FileDescriptor& file) {
  struct stat status {};
  if (::fstat(file.get(), &status) != 0) throw_errno("look at shared memory");
  return static_cast<std::size_t>(status.st_size);
}

MemoryFile make_memory_file(std::size_t bytes, std::string label) {
  if (label.empty()) label = random_label();
  FileDescriptor file(::memfd_create(label.c_str(), MFD_CLOEXEC));
  if (!file) throw_errno("create shared memory");
  if (::ftruncate(file.get(), static_cast<off_t>(bytes)) != 0)
    throw_errno(concat("size shared memory to ", bytes, " bytes"));
  std::string ticket = concat(::getpid(), " ", file.get(), " ", label);
  return {std::move(file), std::move(ticket)};
}

FileDescriptor open_memory_file(const std::string& ticket, std::size_t bytes) {
  std::istringstream text(ticket);
  int process = 0, descriptor = -1;
  std::string label;
  if (!(text >> process >> descriptor >> label))
    throw CommError("shared memory: a rank sent no ticket: " + printable(ticket));
  const std::string path = concat("/proc/", process, "/fd/", descriptor);
  // O_PATH first: opening what somebody else named could have effects, as with a device.
  const FileDescriptor found(::open(path.c_str(), O_PATH | O_CLOEXEC));
  if (!found) throw_errno("open the shared memory of another rank", path);
  if (!is_own_memory(found, label, bytes))
    throw CommError(concat("shared memory: ", path, " is not what a rank of this user has made"));
  FileDescriptor file(::open(own_path(found).c_str(), O_RDWR | O_CLOEXEC));
  if (!file) throw_errno("open the shared memory of another rank", path);
  return file;
}

bool Alarm::sleep(std::chrono::milliseconds longest) {
  const auto nanoseconds = std::chrono::nanoseconds(longest).count();
  const timespec time{nanoseconds / 1'000'000'000, nanoseconds % 1'000'000'000};
  const long ended = ::syscall(SYS_futex, &is_set_, FUTEX_WAIT, 1, &time, nullptr, 0);
  return ended == 0 || errno != ETIMEDOUT;
}

void Alarm::wake() {
  if (is_set_.exchange(0) != 0)
    ::syscall(SYS_futex, &is_set_, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
}

// `aborted` goes 0 -> 1 (a rank writes the reason) -> 2 (the reason can be read).
struct SharedRegion::Head {
  std::atomic<std::uint32_t> aborted;
  char reason[1020];
};

namespace {

constexpr std::size_t kPage = 4096;
constexpr std::size_t round_up(std::size_t bytes) { return (bytes + kPage - 1) / kPage * kPage; }

std::size_t slots_at() { return kPage; }
std::size_t mailboxes_at(std::size_t size) {
  return slots_at() + round_up(size * sizeof(RankSlot));
}
std::size_t staging_at(std::size_t size) {
  return mailboxes_at(size) + round_up(size * size * sizeof(Mailbox));
}

}  // namespace

std::size_t SharedRegion::bytes_for(int size) {
  const auto ranks = static_cast<std::size_t>(size);
  return staging_at(ranks) + ranks * RankSlot::kRounds * kStagingBytes;
}

SharedRegion::Head& SharedRegion::head() const { return *reinterpret_cast<Head*>(mapping_.data()); }

std::string SharedRegion::title(int rank) const {
  return concat("rank ", numbers_.empty() ? rank : numbers_[static_cast<std::size_t>(rank)]);
}

RankSlot& SharedRegion::slot(int rank) const {
  return reinterpret_cast<RankSlot*>(mapping_.data() + slots_at())[rank];
}

Mailbox& SharedRegion::mailbox(int from, int to) const {
  std::byte* first = mapping_.data() + mailboxes_at(static_cast<std::size_t>(size_));
  return reinterpret_cast<Mailbox*>(first)[from * size_ + to];
}

Alarm& SharedRegion::alarm(int rank) const {
  if (parent_ == nullptr) return slot(rank).alarm;
  return parent_->alarm(ranks_in_parent_[static_cast<std::size_t>(rank)]);
}

void SharedRegion::ring_others(int rank) const {
  std::atomic_thread_fence(std::memory_order_seq_cst);
  for (int other = 0; other < size_; ++other)
    if (other != rank) alarm(other).ring();
}

void SharedRegion::share_alarms(
    std::shared_ptr<const SharedRegion> parent, const std::vector<int>& members) {
  parent_ = std::move(parent);
  ranks_in_parent_ = members;
}

std::byte* SharedRegion::staging(int rank, std::uint64_t round) const {
  const std::size_t index = static_cast<std::size_t>(rank) * RankSlot::kRounds +
                            static_cast<std::size_t>(round % RankSlot::kRounds);
  return mapping_.data() + staging_at(static_cast<std::size_t>(size_)) + index * kStagingBytes;
}

void SharedRegion::abort(const std::string& reason) {
  std::uint32_t expected = 0;
  if (!head().aborted.compare_exchange_strong(expected, 1)) return;
  const std::size_t length = std::min(reason.size(), sizeof(head().reason) - 1);
  std::memcpy(head().reason, reason.data(), length);
  head().aborted.store(2);
  ring_others(-1);
}

bool SharedRegion::aborted() const { return head().aborted.load() != 0; }

// A rank that is killed while it writes the reason must not silence the abort.
std::string SharedRegion::abort_reason() const {
  for (int turn = 0; head().aborted.load() == 1 && turn < 100; ++turn)
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  return head().aborted.load() == 2 ? head().reason : "a rank gave up and ended before it said why";
}

void SharedRegion::keep(std::vector<torch::Tensor> tensors) {
  const std::lock_guard lock(mutex_);
  kept_.insert(kept_.end(), tensors.begin(), tensors.end());
}

void SharedRegion::lend(const SubgroupKey& key, const std::shared_ptr<SharedRegion>& region) {
  const std::lock_guard lock(mutex_);
  std::erase_if(lent_, [](const auto& entry) { return entry.second.expired(); });
  lent_[key] = region;
}

std::shared_ptr<SharedRegion> SharedRegion::borrow(const SubgroupKey& key) {
  const std::lock_guard lock(mutex_);
  auto region = lent_[key].lock();
  if (!region) throw CommError(concat("subgroup: rank ", key.second, " has given up"));
  return region;
}

}  // namespace lockstep::host
