#pragma once

#include <cstddef>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include <torch/types.h>

#include "lockstep/comm/process_group.h"
#include "lockstep/parallel/ddp/bucket.h"
#include "lockstep/parallel/ddp/replicas.h"

namespace lockstep {

/// Says how gradients are reduced; sizes in bytes.
struct ReducerOptions {
  std::size_t first_bucket_bytes = std::size_t{1} << 20;
  std::size_t bucket_bytes = std::size_t{25} << 20;
  bool find_unused_parameters = false;
};

/// Averages gradients over all ranks while backward goes on.
///
/// Note [Reducer]
/// A hook on every parameter runs as soon as its gradient is complete. It copies the gradient into
/// its place in a bucket, which from then on is the gradient (`parameter.grad()` is a view of the
/// bucket). A full bucket is reduced at once, always in the order of the buckets, so that all ranks
/// agree; buckets are filled in the order in which backward reaches the parameters, so the last
/// layers travel while the first are still computed. A callback that the autograd engine runs at
/// the end of backward waits for the rest: when backward() returns, all is averaged.
///
///     hooks    fc2  fc1 | conv2  conv1          time ->
///     bucket 0 ====[ reduce ]====
///     bucket 1           ==============[ reduce ]  callback: wait
///
/// The first backward fills buckets from the last parameter to the first. The order in which the
/// gradients really came, that of rank 0, then cuts them anew; not so when parameters may be left
/// out, for then each rank has an order of its own.
///
/// Note [Order of collectives]
/// Every rank makes the same collectives in the same order, whatever its gradients did: the
/// buckets, all of them, in their order; then what the ranks used. So what is found out only at the
/// end of backward, such as a parameter left out, fills its bucket before anything else is sent.
class Reducer {
 public:
  /// Attaches itself to the parameters, which must be the same on all ranks
  /// (check_same_on_all_ranks).
  Reducer(NamedTensors parameters, ProcessGroup group, ReducerOptions options);
  ~Reducer();
  Reducer(const Reducer&) = delete;
  Reducer& operator=(const Reducer&) = delete;

  /// Says whether the backward passes from now on are synchronised; otherwise gradients only
  /// accumulate locally.
  void set_synchronised(bool synchronised) { synchronised_ = synchronised; }
  bool is_synchronised() const { return synchronised_; }

  /// Averages the gradients that have accumulated without synchronisation, as a backward pass would
  /// that adds nothing to them. A collective. A parameter without gradient is an error
  /// (InvalidArgument on the rank that has it, and told to the others) unless unused parameters are
  /// searched for.
  void reduce_accumulated();

  /// Is how long backward has waited for other ranks and reduced gradients so far.
  double communication_seconds() const { return communication_seconds_; }

  /// Gives the parameters of each bucket as they are now cut, for reports and tests.
  const std::vector<BucketPlan>& buckets() const { return plans_; }

 private:
  struct Slot;
  struct Bucket;
  struct Hooks;

  void attach();
  void on_gradient(std::size_t index);
  [[noreturn]] void fail(const std::string& reason) const;

  void begin_pass();
  void fill(Slot& slot);
  void mark_ready(std::size_t index);
  void launch_full_buckets();
  void poll();
  void wait_for_buckets();
  void finish_pass();

  void complete_missing();
  [[noreturn]] void fail_for_unused(const std::vector<std::size_t>& unused) const;
  std::vector<std::size_t> missing_parameters() const;
  torch::Tensor used_on_this_rank() const;
  void agree_on_used();

  void build(const std::vector<std::size_t>& order);
  bool is_order_known() const;
  void rebuild_in_arrival_order();

  ProcessGroup group_;
  ReducerOptions options_;
  bool synchronised_ = true;
  std::mutex mutex_;  // parameters on several devices have their hooks run by several threads

  std::vector<Slot> slots_;  // one per parameter
  std::vector<BucketPlan> plans_;
  std::vector<Bucket> buckets_;
  std::unique_ptr<Hooks> hooks_;

  bool in_pass_ = false;
  std::size_t next_launch_ = 0;
  std::size_t next_poll_ = 0;
  std::vector<std::size_t> arrival_;
  bool rebuilt_ = false;
  double communication_seconds_ = 0;
};

}  // namespace lockstep
