#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <unistd.h>
#include <vector>

#include "lockstep/comm/host/collective.h"
#include "lockstep/comm/host/post.h"
#include "lockstep/comm/host/shared_region.h"
#include "lockstep/comm/work.h"
#include "lockstep/core/file_descriptor.h"

namespace lockstep::host {

class Engine;

/// Shares a short text with all ranks and returns those of all, in rank order.
using ExchangeText = std::function<std::vector<std::string>(const std::string&)>;

/// The means by which ranks on one host see one another's tensors without copying them.
class AddressSpace {
 public:
  virtual ~AddressSpace() = default;

  /// Names the memory so that the other ranks can find it; nothing if they cannot see it.
  virtual std::optional<Exposure> expose(const void* memory, std::size_t bytes) const = 0;

  /// Finds the memory that a rank exposed; it stays mapped as long as somebody has the result, even
  /// if this rank releases its own part meanwhile.
  virtual std::shared_ptr<std::byte> resolve(int rank, const Exposure& exposure) const = 0;

  /// Makes a tensor that expose() can name. Every rank calls it with the same arguments.
  virtual torch::Tensor empty(
      std::int64_t elements, const torch::TensorOptions& options, const ExchangeText& exchange) = 0;

  /// Never lets another tensor have this memory, which ranks of a failed collective may still use.
  virtual void retire(const void*) {}

  /// Makes a tensor that expose() can name without the other ranks.
  virtual torch::Tensor allocate(std::int64_t elements, const torch::TensorOptions& options) {
    return torch::empty({elements}, options);
  }
};

/// The engines of one rank's groups.
///
/// An engine has no thread, so while the rank waits for one group its part in the others would
/// stand still, and two ranks that wait for two groups in different order would wait for each
/// other. So every wait or poll advances all of them.
class RankEngines {
 public:
  void add(const std::shared_ptr<Engine>& engine);

  /// Advances all engines but this one, without blocking; the caller holds no engine's mutex.
  void poll_others(const Engine& engine);

 private:
  std::mutex mutex_;
  std::vector<std::weak_ptr<Engine>> engines_;
  std::atomic<std::size_t> count_ = 0;
};

/// Watches the processes of ranks.
class PeerWatch {
 public:
  /// Throws std::system_error if processes cannot be watched here.
  explicit PeerWatch(const std::vector<int>& processes);

  /// Returns what has become of the rank's process if it has ended; empty while it runs.
  std::string lost(int rank) const;

 private:
  std::vector<int> processes_;
  std::vector<FileDescriptor> watched_;
};

/// A collective under way on one rank. Its rounds are begun, worked on and ended in order, and one
/// may begin before the last one has ended.
struct Job {
  Collective collective;
  std::uint64_t number = 0;
  std::chrono::milliseconds limit = {};  ///< of a wait for it
  bool at_once = false;          ///< small: all staged, and nobody waits for the others to finish
  bool staged = false;           ///< this rank's memory is seen through its staging buffers
  bool written_by_root = false;  ///< a part of this rank's result of a broadcast
  Cut cut = {};
  std::uint64_t first = 0;                            ///< the number of its first round
  std::int64_t begun = 0, worked = 0, ended = 0;      ///< rounds
  std::vector<ChunkView> exposed = {};                ///< each rank's whole memory; null if staged
  std::vector<std::shared_ptr<std::byte>> held = {};  ///< what of that is others' memory
  bool complete = false;
  std::exception_ptr error = nullptr;

  std::uint64_t round_to_work() const { return first + static_cast<std::uint64_t>(worked); }
  std::uint64_t round_to_end() const { return first + static_cast<std::uint64_t>(ended); }

  /// Returns whether the others leave this rank's result in its staging buffer.
  bool copies_out() const {
    return !at_once && staged && collective.in_place() && collective.output != nullptr;
  }
  /// Returns whether a round ends only when all have finished it: they write this rank's result, or
  /// read what its owner may change as soon as the collective has ended.
  bool waits_for_others() const {
    return copies_out() || written_by_root || (!staged && collective.input != nullptr);
  }
  std::string describe() const;
};

/// Carries out one rank's collectives and messages over a shared region.
///
/// Note [Rounds]
/// A collective is one or more rounds. In each a rank
///   1. begins: makes its memory visible, the tensor itself where the others can see it, else a
///      copy in a staging buffer; writes its descriptor; raises `arrived`;
///   2. works, once all have arrived: compares the descriptors, does its part of the work on all
///      ranks' memory, raises `finished`;
///   3. ends the round, once all have finished: copies the result out of the staging buffer, if
///      that was used. Where nobody else touches this rank's tensors it ends at once.
/// A tensor that all can see takes one round, and so does a small one, which is staged in any case
/// and ends at once: one wait, not two. Other staged tensors take one round per buffer-full; each
/// rank has some buffers (kRounds) and fills the next ones before it works on the first, so that
/// ranks rarely wait for each other. With two of them:
///
///     begin 0, begin 1, work 0, end 0, begin 2, work 1, end 1, begin 3, ...
///
/// A round begins when all have finished the one that last used its buffer and its descriptor.
/// There is no communication thread: each call that begins a collective, polls or waits advances
/// everything under way, in order, in all groups of the rank (see RankEngines). So the reducer
/// overlaps communication with backward by polling between buckets, without taking a core from the
/// computation.
class Engine : public std::enable_shared_from_this<Engine> {
 public:
  Engine(std::shared_ptr<SharedRegion> region, std::unique_ptr<AddressSpace> space, int rank);
  ~Engine();
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  Work begin(Collective collective);
  Work send(const torch::Tensor& tensor, int to, int tag) { return post(tensor, to, tag, true); }
  Work recv(const torch::Tensor& tensor, int from, int tag) {
    return post(tensor, from, tag, false);
  }

  void match_tags() { post_.match_tags(); }
  bool matches_tags() const { return post_.matches_tags(); }

  /// Advances the groups of this rank together from now on.
  void join(std::shared_ptr<RankEngines> engines);
  const std::shared_ptr<RankEngines>& engines_of_rank() const { return rank_engines_; }

  /// Watches the ranks' processes from now on.
  void watch(const std::vector<int>& processes) { watch_ = std::make_unique<PeerWatch>(processes); }

  /// Advances what is under way unless another thread does.
  void poll_if_free();

  /// Advances what is under way; returns whether messages still are.
  bool advance_messages();

  void abort(const std::string& reason) { region_->abort(reason); }
  AddressSpace& space() { return *space_; }
  std::chrono::milliseconds timeout() const { return timeout_.load(); }
  /// Of the calls that begin from now on and have no limit of their own.
  void set_timeout(std::chrono::milliseconds timeout) { timeout_ = timeout; }

 private:
  template <typename Target>
  class Ticket;
  class Lock;

  Work post(const torch::Tensor& tensor, int peer, int tag, bool outgoing);
  std::chrono::milliseconds limit() const;

  // All below are called with the mutex held.
  void poll();
  bool advance();  ///< returns whether something is still under way
  template <typename Target>
  void look(const Target& target, std::chrono::milliseconds waited);
  bool step(Job& job);
  bool may_begin(const Job& job);
  bool may_work(const Job& job) const;
  bool may_end(const Job& job);
  void begin_round(Job& job);
  void work_on_round(Job& job);
  void end_round(Job& job);
  void introduce(Job& job, Descriptor& descriptor);
  void meet(Job& job);
  bool shows(const Job& job, int rank) const;  ///< whether it can be seen where it lies
  void verify(const Job& job) const;
  ChunkView view_of(const Job& job, const Chunk& chunk, int rank) const;
  bool all_arrived(std::uint64_t round) const;
  bool all_finished(std::uint64_t round);

  void inspect(const Job& asked, std::chrono::milliseconds waited) const;
  void inspect(const Message& message, std::chrono::milliseconds waited) const;
  std::vector<int> missing() const;
  std::string lost(int rank) const;
  std::string lost_sender(const Message& message) const;
  void fail(const std::exception_ptr& error);

  /// Returns whether another rank that does not sleep was last seen on the core of this one.
  bool shares_core() const;

  std::shared_ptr<SharedRegion> region_;
  std::unique_ptr<AddressSpace> space_;
  std::unique_ptr<PeerWatch> watch_;
  std::shared_ptr<RankEngines> rank_engines_;
  const int process_ = ::getpid();
  int rank_;
  bool is_crowded_;  ///< more ranks than cores
  std::atomic<std::chrono::milliseconds> timeout_ =
      std::chrono::milliseconds(std::chrono::minutes(5));

  std::mutex mutex_;
  std::exception_ptr failure_;
  std::uint64_t rounds_ = 0;        ///< begun
  std::uint64_t all_finished_ = 0;  ///< as far as this rank knows
  std::uint64_t collectives_ = 0;
  std::deque<std::shared_ptr<Job>> jobs_;
  std::vector<std::shared_ptr<Job>> ended_;
  Post post_;
};

}  // namespace lockstep::host
