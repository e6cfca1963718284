#include "lockstep/comm/host/shared_region.h"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <climits>
#include <cstring>
#include <ctime>
#include <linux/futex.h>
#include <sys/syscall.h>
#include <thread>
#include <unistd.h>

#include "lockstep/core/error.h"

namespace lockstep::host {

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
