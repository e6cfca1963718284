#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include <torch/types.h>

#include "lockstep/core/file_descriptor.h"
#include "lockstep/liveness/own_slot.h"

namespace lockstep::host {

/// Owns pages that are mapped into this process, zero at first.
class Mapping {
 public:
  Mapping() = default;
  /// Maps memory of this process alone.
  static Mapping anonymous(std::size_t bytes);
  /// Maps the file's memory, shared with all who map it.
  static Mapping shared(const FileDescriptor& file, std::size_t bytes);

  Mapping(Mapping&& other) noexcept;
  Mapping& operator=(Mapping&& other) noexcept;
  ~Mapping();

  std::byte* data() const { return data_; }

 private:
  Mapping(int flags, int descriptor, std::size_t bytes);

  std::byte* data_ = nullptr;
  std::size_t bytes_ = 0;
};

/// Memory without a name in any file system: it vanishes with the last process that holds it, even
/// after SIGKILL.
struct MemoryFile {
  FileDescriptor descriptor;
  std::string ticket;  ///< what another process opens it by: process, descriptor, random label
};

/// The label tells the file from others that may have its number later; empty: a random one.
MemoryFile make_memory_file(std::size_t bytes, std::string label = "");

/// Opens memory that another process of this user made. The ticket came over a store that anybody
/// may have written to, or from another host: throws CommError unless it leads to memory of this
/// user, with this label, of at least this size.
FileDescriptor open_memory_file(const std::string& ticket, std::size_t bytes);

/// Returns the size of a file in bytes.
std::size_t size_of(const FileDescriptor& file);

/// A word in the ranks' memory on which the threads of one rank sleep until another rank rings.
///
/// Note [Alarms]
/// The sleeper sets its alarm and looks once more; who publishes something looks for alarms that
/// are set. With a fence between the two steps on either side at least one of them sees the other,
/// so no ring is lost. Where all ranks wait for all, as in a round, only the last one rings.
class Alarm {
 public:
  /// Sleeps until the alarm is rung, or for that time at most, unless `done()` holds. Returns
  /// whether something may have happened.
  template <typename Done>
  bool sleep_unless(Done done, std::chrono::milliseconds longest) {
    is_set_.store(1, std::memory_order_relaxed);
    std::atomic_thread_fence(std::memory_order_seq_cst);
    return done() || sleep(longest);
  }

  /// Wakes the sleeper. The caller must pass a fence between publishing its news and this call.
  void ring() {
    if (is_set_.load(std::memory_order_relaxed) != 0) wake();
  }

  /// Returns whether somebody sleeps, or was woken by the time and found nothing.
  bool is_set() const { return is_set_.load(std::memory_order_relaxed) != 0; }

 private:
  bool sleep(std::chrono::milliseconds longest);
  void wake();

  std::atomic<std::uint32_t> is_set_;  // cleared by who rings alone: several threads may sleep
};

using Kind = Operation;  // of which a host has the collectives

/// Where memory lies so that every rank can find it: in a segment of shared memory, or nowhere.
struct Exposure {
  static constexpr std::uint64_t kNothing = 0, kStaging = 1, kAddress = 2, kFirstSegment = 3;
  static constexpr std::uint64_t kOwn = std::uint64_t{1} << 63;  ///< the bit of OwnSegments
  std::uint64_t segment = kNothing;
  std::uint64_t offset = 0;
};

/// The facts that a rank publishes about the collective of a round before it arrives.
struct Descriptor {
  Kind kind = Kind::kNone;
  std::int32_t element = 0;  ///< at::ScalarType
  std::int32_t op = 0;
  std::int32_t root = -1;
  std::int64_t elements = 0;  ///< of one piece
  Exposure exposure;
};

/// The facts that a rank publishes when it arrives in a round: in one cache line, so that a rank
/// that waits fetches all of it at once.
struct alignas(64) Arrival {
  std::atomic<std::uint64_t> round;  ///< its memory may be used in this round
  Descriptor descriptor;             ///< written in the first round of a collective only
};
static_assert(sizeof(Arrival) == 64);

/// One rank's part of the control block. Only that rank writes it.
struct alignas(128) RankSlot {
  /// Rounds whose memory may be in use at the same time: the others may be late by so many. Where
  /// ranks share a core, each gets so far before it must give the core to the other.
  static constexpr std::uint64_t kRounds = 4;

  Arrival arrivals[kRounds];
  /// The rounds in which the rank has used the others' memory.
  alignas(64) std::atomic<std::uint64_t> finished;
  /// The number of the collective it is at, for messages.
  alignas(64) std::atomic<std::uint64_t> collective;
  std::atomic<std::int32_t> kind;   ///< and its kind
  std::atomic<std::int32_t> core;   ///< the core it last ran on, plus one
  std::atomic<std::uint32_t> left;  ///< the rank has left normally
  alignas(64) Alarm alarm;          ///< that any rank rings; see SharedRegion::alarm()

  Arrival& arrival(std::uint64_t round) { return arrivals[round % kRounds]; }
  bool has_arrived(std::uint64_t round) {
    return arrival(round).round.load(std::memory_order_acquire) >= round;
  }
  bool has_finished(std::uint64_t round) const {
    return finished.load(std::memory_order_acquire) >= round;
  }
};

/// The one-way channel between two ranks: a ring of slots. It is wide, so that a
/// pipeline rarely waits to send; only pages that are used cost memory.
struct alignas(128) Mailbox {
  static constexpr std::size_t kSlots = 256, kSlotBytes = 128 * 1024;
  struct Header {
    std::int32_t tag;
    std::int32_t element;  ///< at::ScalarType
    std::int64_t elements;
  };
  struct Letter {
    Header header;
    alignas(64) std::byte content[kSlotBytes];
  };
  std::atomic<std::uint64_t> written;
  alignas(64) std::atomic<std::uint64_t> read;
  Letter letters[kSlots];
};

/// The memory through which the ranks of one host meet: a slot, a mailbox to each other rank and
/// staging buffers per rank. Pages cost nothing until they are touched.
class SharedRegion {
 public:
  /// Of the staging buffer of one round: all of them stay in a core's second-level cache.
  static constexpr std::size_t kStagingBytes = std::size_t{1} << 18;
  /// Which split it is, and the first rank of the part.
  using SubgroupKey = std::pair<int, int>;

  static std::size_t bytes_for(int size);
  SharedRegion(Mapping mapping, int size) : mapping_(std::move(mapping)), size_(size) {}

  int size() const { return size_; }
  /// Gives the ranks the numbers in messages that they have in a larger group.
  void name_ranks(std::vector<int> numbers) { numbers_ = std::move(numbers); }
  /// Returns a rank's name for messages, such as `rank 3`.
  std::string title(int rank) const;
  RankSlot& slot(int rank) const;
  Mailbox& mailbox(int from, int to) const;
  /// The rank's alarm, one for all groups that were split from the same one.
  Alarm& alarm(int rank) const;
  /// Rings for all other ranks. Fences first, see Note [Alarms].
  void ring_others(int rank) const;
  /// Where the rank shows the others a copy of its memory in this round.
  std::byte* staging(int rank, std::uint64_t round) const;

  /// Uses the alarms of the group that this one was split from; its rank i was `members[i]` there.
  void share_alarms(std::shared_ptr<const SharedRegion> parent, const std::vector<int>& members);

  /// Makes every rank's collectives fail; the first reason stays.
  void abort(const std::string& reason);
  bool aborted() const;
  std::string abort_reason() const;

  /// Keeps tensors of a failed collective until the region goes: a thread that is late may still
  /// read them.
  void keep(std::vector<torch::Tensor> tensors);

  /// Leaves a subgroup's memory for the other threads that belong to it: `key` is the same in all
  /// of them. It stays with its owner.
  void lend(const SubgroupKey& key, const std::shared_ptr<SharedRegion>& region);
  /// Returns what was lent. Throws CommError if its owner has given up meanwhile.
  std::shared_ptr<SharedRegion> borrow(const SubgroupKey& key);

 private:
  struct Head;
  Head& head() const;

  Mapping mapping_;
  int size_;
  std::shared_ptr<const SharedRegion> parent_;
  std::vector<int> ranks_in_parent_;
  std::vector<int> numbers_;  ///< empty: the ranks' own
  std::mutex mutex_;
  std::vector<torch::Tensor> kept_;
  std::map<SubgroupKey, std::weak_ptr<SharedRegion>> lent_;
};

}  // namespace lockstep::host
