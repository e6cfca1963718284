#pragma once

#include <cstdint>

#include "lockstep/liveness/own_slot.h"

namespace lockstep {

/// A call that was begun, for the time in which a thread waits for it.
struct CallTicket {
  GroupSlot* slot = nullptr;  ///< null: not recorded
  std::uint64_t word = 0;     ///< of the GroupCall
  std::uint64_t number = 0;   ///< among the group's collectives; 0: it is none
};

/// The time in which a thread waits for a call to end.
class CallWait {
 public:
  explicit CallWait(const CallTicket& ticket) noexcept : slot_(ticket.slot) {
    if (slot_ == nullptr) return;
    slot_->waited.store(ticket.word, std::memory_order_relaxed);
    slot_->waited_number.store(ticket.number, std::memory_order_relaxed);
    slot_->waits.fetch_add(1, std::memory_order_release);
  }
  ~CallWait() {
    if (slot_ == nullptr) return;
    slot_->waits.fetch_sub(1, std::memory_order_relaxed);
    slot_->events.fetch_add(1, std::memory_order_relaxed);
  }
  CallWait(const CallWait&) = delete;
  CallWait& operator=(const CallWait&) = delete;

 private:
  GroupSlot* slot_;
};

/// One rank's record of the calls of one group, in the progress page of its process; empty where no
/// launcher reads it. A group beyond ProgressSlot::kGroups shares the last slot with others.
class GroupRecord {
 public:
  GroupRecord() = default;

  /// Takes a slot for a group: `id` is the same on all of its ranks and of no other group of the
  /// world.
  GroupRecord(ProgressSlot* process, std::uint64_t id, int rank, int size);
  GroupRecord(GroupRecord&& other) noexcept;
  GroupRecord& operator=(GroupRecord&&) = delete;
  ~GroupRecord();

  bool is_empty() const { return slot_ == nullptr; }

  /// Records that a collective is begun.
  CallTicket begin(Operation operation, std::int64_t bytes) noexcept {
    if (slot_ == nullptr) return {};
    const std::uint64_t word = GroupCall{operation, bytes}.word();
    slot_->last.store(word, std::memory_order_relaxed);
    return {slot_, word, slot_->begun.fetch_add(1, std::memory_order_relaxed) + 1};
  }

  /// Records that something is begun which not all ranks of the group do: a message, a meeting.
  CallTicket begin_alone(Operation operation, std::int64_t bytes) noexcept {
    if (slot_ == nullptr) return {};
    const std::uint64_t word = GroupCall{operation, bytes}.word();
    slot_->last.store(word, std::memory_order_relaxed);
    slot_->events.fetch_add(1, std::memory_order_relaxed);
    return {slot_, word, 0};
  }

  /// Returns the record of a group made of this one's ranks: the `count`-th one, that of `first`, a
  /// rank of this group which is in that one alone.
  GroupRecord part(ProgressSlot* process, int count, int first, int rank, int size) const;

 private:
  GroupSlot* slot_ = nullptr;
  std::uint64_t id_ = 0;
};

/// The group of all ranks.
inline constexpr std::uint64_t kWorldGroup = 1;

/// Groups that share a slot, and so have no numbers to compare.
inline constexpr std::uint64_t kOtherGroups = 2;

}  // namespace lockstep
