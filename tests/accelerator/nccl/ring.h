#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <sys/types.h>
#include <utility>
#include <vector>

#include "tests/accelerator/streams.h"

#include "lockstep/comm/device/nccl_api.h"

namespace lockstep::emulated {

// Note [Emulated NCCL]
// The ranks of a communicator are threads, or processes with devices of their own. They meet in
// memory that they share, and a kernel reads and writes the devices of all of them, as those of
// GPUs do. Each rank comes to a call when its process needs what the call gives, or when another
// rank has come: as late as it can. Who comes last computes for all. The memory has no name but
// /proc/PID/fd/FILE, so nothing is left of ranks that are killed.

/// One rank's arguments of a call, where kernels find them.
struct Part {
  const void* input = nullptr;
  void* output = nullptr;
};

using Parts = std::vector<Part>;
using Kernel = std::function<void(const Parts&)>;

constexpr std::size_t kMostRanks = 16;

/// A meeting place of the ranks that take part in a call, of one call after the other. In memory
/// that they share, which begins as zeros.
struct Place {
  /// A part in memory of that rank's device, counted from its first byte; -1 for none.
  struct Given {
    int rank;
    std::int64_t input, output;
  };

  std::atomic<std::uint32_t> connected;  ///< a bit for each part that was called at all
  std::atomic<std::int64_t> come;        ///< parts, in all calls
  std::atomic<std::int64_t> done;        ///< calls
  std::array<Given, kMostRanks> given;
};

/// A rank's part in a call.
struct Call {
  Place* place;
  int part, parts;  ///< which of how many
  std::int64_t number;
  Part given;
  Kernel kernel;
};

/// Memory of a file that a process holds open, this one or another, for as long as it lives.
class Mapping {
 public:
  Mapping(pid_t process, int file, std::size_t bytes);
  ~Mapping();
  Mapping(const Mapping&) = delete;
  Mapping& operator=(const Mapping&) = delete;

  std::byte* begin() const { return begin_; }

 private:
  std::size_t bytes_;
  std::byte* begin_;
};

/// A communicator, as one rank has it. Throws std::system_error where memory cannot be shared.
class Ring {
 public:
  /// Makes what the ranks will share, and its name, by which they find it until all have.
  static nccl::UniqueId make();

  /// Takes part with memory of the current device.
  Ring(const nccl::UniqueId& name, int ranks, int rank);

  int rank() const { return rank_; }
  int ranks() const { return ranks_; }

  /// Says whether all ranks are there, and looks for their devices: nothing is called before.
  bool is_complete();

  /// Ends what waits for a rank that will not come, on all ranks.
  void abort();
  bool is_aborted() const;

  /// Where all ranks meet, and where a message passes.
  Place& collectives() const;
  Place& messages(int from, int to) const;

  /// Comes to a call.
  void come(const Call& call) const;

 private:
  struct Shared;
  Shared& shared() const { return *reinterpret_cast<Shared*>(memory_.begin()); }
  std::int64_t offset_of(const void* address) const;
  Part part_of(const Place::Given& given) const;

  int rank_, ranks_, file_;
  Mapping memory_;
  const std::byte* own_;  // the memory of this rank's device
  std::vector<std::unique_ptr<Mapping>> devices_;
};

/// A call that a rank has made and not come to yet.
struct PendingCall {
  Call call;
  std::size_t stream;  ///< of the rank
  Mark end;            ///< the stream goes on when the kernel has run
};

/// The calls that a rank has made and that are not on their streams yet: they come there together,
/// when those whom they meet for the first time have called, too.
class Launches {
 public:
  explicit Launches(std::shared_ptr<Ring> ring) : ring_(std::move(ring)) {}

  bool is_empty() const { return calls_.empty(); }
  void add(PendingCall call);

  /// Launches what can be; returns whether nothing is left.
  bool try_launch();

  /// Waits for the others as long as it takes. False if one gives up.
  bool launch();

 private:
  bool is_connected() const;

  std::shared_ptr<Ring> ring_;
  std::vector<PendingCall> calls_;
};

}  // namespace lockstep::emulated
