#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string>

#include "lockstep/core/enum_names.h"

namespace lockstep {

// Note [Who writes a progress page]
// A rank's process writes its slot, the launcher reads it; only the file for stacks goes the other
// way. Ranks of Python write theirs without this code: python/lockstep/_liveness.py. Counters are
// added to atomically, since threads of one process may share a group. A reader that sees `waits`
// above zero (acquire) sees what the waiting thread stored before (release); all other words are
// single facts, in whatever order they become visible.

/// A call by which ranks meet.
enum class Operation : std::uint8_t {
  kNone,
  kMeeting,
  kAllReduce,
  kReduce,
  kBroadcast,
  kAllGather,
  kGather,
  kScatter,
  kReduceScatter,
  kAllToAll,
  kBarrier,
  kSplit,
  kEmpty,
  kSend,
  kRecv,
};

constexpr auto names_of(Operation) {
  using Op = Operation;
  return std::array{EnumName{Op::kNone, "no call"}, EnumName{Op::kMeeting, "init_process_group"},
      EnumName{Op::kAllReduce, "all_reduce"}, EnumName{Op::kReduce, "reduce"},
      EnumName{Op::kBroadcast, "broadcast"}, EnumName{Op::kAllGather, "all_gather"},
      EnumName{Op::kGather, "gather"}, EnumName{Op::kScatter, "scatter"},
      EnumName{Op::kReduceScatter, "reduce_scatter"}, EnumName{Op::kAllToAll, "all_to_all"},
      EnumName{Op::kBarrier, "barrier"}, EnumName{Op::kSplit, "split"},
      EnumName{Op::kEmpty, "empty"}, EnumName{Op::kSend, "send"}, EnumName{Op::kRecv, "recv"}};
}

/// A call of a group, in one word of a slot: the operation, and the bytes of this rank's tensor.
struct GroupCall {
  Operation operation = Operation::kNone;
  std::int64_t bytes = 0;

  bool operator==(const GroupCall&) const = default;

  constexpr std::uint64_t word() const {
    return static_cast<std::uint64_t>(operation) << 56U |
           (static_cast<std::uint64_t>(bytes) & ((std::uint64_t{1} << 56U) - 1));
  }

  static constexpr GroupCall of_word(std::uint64_t word) {
    return {static_cast<Operation>(word >> 56U),
        static_cast<std::int64_t>(word & ((std::uint64_t{1} << 56U) - 1))};
  }
};

/// The progress of a process that may save what all have trained when it loses its peers.
enum class RescueState : std::uint32_t {
  kNone,  ///< nothing, or it is not worth the time
  kPossible,
  kUnderWay,
  kDone,
};

/// The calls of one group, as one rank makes them.
struct alignas(64) GroupSlot {
  std::atomic<std::uint64_t> id{0};     ///< the same on all ranks of the group; 0: the slot is free
  std::atomic<std::uint64_t> place{0};  ///< the rank in the group, above the group's size
  std::atomic<std::uint64_t> begun{0};  ///< collectives
  std::atomic<std::uint64_t> events{0};  ///< ends of calls, and messages
  std::atomic<std::uint64_t> last{0};    ///< the GroupCall that was begun last
  std::atomic<std::uint64_t> waits{0};   ///< threads that wait for a call to end
  std::atomic<std::uint64_t> waited{0};  ///< the GroupCall that the last of them waits for
  std::atomic<std::uint64_t> waited_number{
      0};  ///< its number among the collectives; 0: it has none
};

/// One process's part of a progress page.
struct alignas(64) ProgressSlot {
  static constexpr std::size_t kGroups = 16;

  std::atomic<std::int64_t> step{-1};  ///< the furthest; 0: none yet, -1: nobody reports any
  std::atomic<std::int64_t> first_step_ns{0};  ///< when this process did its first step; 0: not yet
  std::atomic<std::uint64_t> signs{0};         ///< of life, beside the calls
  std::atomic<std::int32_t> process{0};        ///< that has attached; 0: none has
  std::atomic<std::int32_t> stack_signal{0};   ///< by which it is asked for its stack; 0: it is not
  std::atomic<std::int32_t> stack_file{-1};    ///< where to: a descriptor of the launcher
  std::atomic<std::uint32_t> answers{0};       ///< stacks that were written, a futex
  std::atomic<RescueState> rescue{RescueState::kNone};  ///< if its peers are lost
  /// A descriptor of the process, to which Python writes its stacks when it is asked; -1: none.
  std::atomic<std::int32_t> python_stacks{-1};
  std::array<GroupSlot, kGroups> groups;
};

static_assert(std::atomic<std::int64_t>::is_always_lock_free, "processes share these numbers");
static_assert(sizeof(GroupSlot) == 64 && sizeof(ProgressSlot) == 64 * (1 + ProgressSlot::kGroups));

/// The slot of this process, once it has attached; null without a launcher of ours.
inline std::atomic<ProgressSlot*> attached_slot{nullptr};

/// Attaches this process to the page that LOCKSTEP_PROGRESS names, once and for its whole life, and
/// has it answer the launcher's question for its stack. Returns its slot; null when no launcher of
/// ours reads it.
ProgressSlot* own_slot();

/// Tells the launcher that this process lives, where work may take longer than the time after which
/// it would be taken to hang. Takes nanoseconds, in any thread.
///
///     for (const Batch& batch : validation) {
///       ...
///       lockstep::sign_of_life();
///     }
inline void sign_of_life() noexcept {
  if (ProgressSlot* const slot = attached_slot.load(std::memory_order_relaxed))
    slot->signs.fetch_add(1, std::memory_order_relaxed);
}

/// Tells the launcher what this process can do when it loses its peers, and how far it is with it:
/// so long it is left alone after a failure, half a second to notice and a minute to save.
inline void report_rescue(RescueState state) noexcept {
  if (ProgressSlot* const slot = attached_slot.load(std::memory_order_relaxed))
    slot->rescue.store(state, std::memory_order_relaxed);
}

/// Returns the signal by which a launcher asks a thread of a rank for its stack: a real-time signal
/// of which neither glibc nor LibTorch nor Python makes use.
int stack_signal();

/// Has that signal answered from now on: the thread that gets it appends `thread ID` and a line for
/// each of its frames to the slot's file, a descriptor of the process of whom `page` is one, and
/// counts the answer. Returns false, and changes nothing, if the program handles the signal itself.
bool answer_for_stack(ProgressSlot& slot, const std::string& page);

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
