#include "lockstep/liveness/group_record.h"

#include <utility>

namespace lockstep {
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
