#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include <torch/types.h>

#include "lockstep/comm/process_group.h"
#include "lockstep/core/stopwatch.h"
#include "lockstep/parallel/ddp/comm_hook.h"
#include "lockstep/parallel/ddp/gradient_hooks.h"
#include "lockstep/parallel/ddp/replicated_state.h"
#include "lockstep/parallel/schedule/bucket.h"

namespace lockstep {

/// The reducer's record of the gradients that it has averaged on this rank.
struct ReducerReport {
  std::int64_t passes = 0;       ///< backward passes that were synchronised
  std::size_t buckets = 0;       ///< a pass
  std::size_t bytes = 0;         ///< of the buckets of dense gradients, a pass
  bool rebuilt = false;          ///< the buckets were cut anew, in the order of arrival
  bool graph_is_static = false;  ///< every pass, two at least, used the same parameters as often
  double communication_seconds = 0;  ///< from the first bucket's launch to the last one's end
  double exposed_seconds = 0;        ///< of these, spent launching, carrying forward and waiting

  /// Returns the share of communication that overlapped with backward, from 0 to 1.
  double hidden_share() const;
  /// Returns it in one line.
  std::string to_string() const;
};

/// The options of the reduction of gradients; sizes in bytes.
struct ReducerOptions {
  std::size_t first_bucket_bytes = std::size_t{1} << 20;
  std::size_t bucket_bytes = std::size_t{25} << 20;
  bool find_unused_parameters = false;
  bool static_graph = false;
  std::set<std::string> sparse = {};  ///< parameters whose gradients are sparse
};

/// The averaging of gradients over all ranks during backward.
///
/// Note [Reducer]
/// A hook on every parameter runs as soon as its gradient is complete. It copies the gradient into
/// its place in a bucket, unless a kernel of ours computed it there; from then on the gradient lies
/// in the place. A gradient that a caller keeps after zero_grad() keeps its values: they move to a
/// copy before the place is used again (Note [Gradients in their places]). A full bucket is reduced
/// at once, always in the order of the buckets, so that all ranks agree; buckets are filled in the
/// order in which backward reaches the parameters, so the last layers travel while the first are
/// still computed. A callback that the autograd engine runs at the end of backward waits for the
/// rest: when backward() returns, all is averaged.
///
///     hooks    fc2  fc1 | conv2  conv1          time ->
///     bucket 0 ====[ reduce ]====
///     bucket 1           ==============[ reduce ]  callback: wait
///
/// The first backward fills buckets from the last parameter to the first. They are then cut anew in
/// the order in which the gradients came on rank 0; not so when parameters may be left out, for
/// then each rank has a different order.
///
/// Note [Order of collectives]
/// Every rank makes the same collectives in the same order, whatever its gradients did: all buckets
/// in their order; then which parameters the ranks used; then the second step of communication
/// hooks, in the order of the buckets again, and so on. So a parameter that turns out to be left
/// out at the end of backward fills its bucket before anything else is sent.
///
/// Note [Backward inside backward]
/// Checkpointed parts run another backward inside the outer one, and the engine ends the inner one
/// first. What ends the pass is therefore queued where the outer one starts, at the
/// outputs of forward (expect_backward); without them, where the first gradient comes.
class Reducer {
 public:
  /// Attaches itself to the parameters, which must be the same on all ranks
  /// (check_same_on_all_ranks).
  Reducer(NamedTensors parameters, ProcessGroup group, ReducerOptions options);
  ~Reducer();
  Reducer(const Reducer&) = delete;
  Reducer& operator=(const Reducer&) = delete;

  /// Sets whether backward passes are synchronised from now on; if not, gradients only accumulate
  /// locally.
  void set_synchronised(bool synchronised) { synchronised_ = synchronised; }
  bool is_synchronised() const { return synchronised_; }

  /// Ends the pass where the backward from these outputs ends, see Note [Backward inside backward].
  void expect_backward(const std::vector<torch::Tensor>& outputs);

  /// Throws if an earlier backward ended by an exception: its gradients are lost.
  void check_no_pass_was_broken_off();

  /// Averages the gradients that have accumulated without synchronisation, as a backward pass would
  /// that adds nothing to them. A collective. A parameter without gradient is an error
  /// (InvalidArgument on its rank, which aborts the others) unless unused parameters are searched
  /// for or the graph is static.
  void reduce_accumulated();

  /// Lets the hook average the dense buckets from now on. Throws InvalidArgument if there is one.
  void register_comm_hook(CommHook hook);

  /// The work of a pass on the gradients.
  enum class Pass { kBackward, kAccumulated };

  /// Sets a function that is called before the first collective of each pass and returns the number
  /// by which the sum over all ranks is divided. Without one: the number of ranks.
  using Announce = std::function<int(Pass)>;
  void set_announcement(Announce announce) { announce_ = std::move(announce); }

  /// Takes part in a pass of the others, contributing nothing. The gradients' memory is
  /// overwritten. The divisor is that of the others.
  void shadow(Pass pass, int divisor);

  /// Returns how long backward has waited for other ranks and reduced gradients so far.
  double communication_seconds() const { return report_.exposed_seconds; }

  ReducerReport report() const;

  /// Returns the parameters of each bucket as they are now cut, for reports and tests.
  const std::vector<BucketPlan>& buckets() const { return plans_; }

 private:
  struct Slot;
  struct Bucket;

  void attach();
  void queue_end();
  void on_gradient(std::size_t index);
  [[noreturn]] void fail(const std::string& reason) const;

  void begin_pass(Pass pass, int divisor);
  void keep_for_others(Slot& slot);
  void fill(Slot& slot);
  void mark_ready(std::size_t index);
  void launch_full_buckets();
  CommStep launch(std::size_t index);
  GradientBucket describe(std::size_t index) const;
  void poll();
  void finish_steps();
  void divide();
  void report_reduction();
  void finish_pass();

  bool may_leave_out() const { return options_.find_unused_parameters || options_.static_graph; }
  void count_use(Slot& slot) const;
  bool is_complete(const Slot& slot) const;
  void prepare_never_used();
  void complete_missing();
  void compare_with_first_pass();
  [[noreturn]] void fail_for_unused(const std::vector<std::size_t>& unused) const;
  [[noreturn]] void fail_for_changed_graph(const Slot& slot) const;
  std::vector<std::size_t> missing_parameters() const;
  torch::Tensor used_on_this_rank() const;
  void agree_on_used();

  void build(const std::vector<std::size_t>& order);
  void give_memory(const BucketPlan& plan);
  bool may_rebuild() const;
  void rebuild_in_arrival_order();

  ProcessGroup group_;
  ReducerOptions options_;
  CommHook hook_;
  Announce announce_;
  bool synchronised_ = true;
  std::mutex mutex_;  // parameters on several devices have their hooks run by several threads

  std::vector<Slot> slots_;  // one per parameter
  std::vector<BucketPlan> plans_;
  std::vector<Bucket> buckets_;
  /// Shows the hooks on outputs, which may outlive the reducer, whether it still exists.
  std::shared_ptr<Reducer*> alive_ = std::make_shared<Reducer*>(this);

  // Of the pass under way.
  bool in_pass_ = false;
  bool end_is_queued_ = false;
  bool shadowing_ = false;
  Pass pass_ = Pass::kBackward;
  int divisor_ = 1;
  std::size_t next_launch_ = 0;
  std::size_t next_poll_ = 0;
  Stopwatch since_launch_;

  // Of all passes. Equal on all ranks: agreed_, order_known_, rebuilt_.
  bool agreed_ = false;       // on what no rank uses, once for all if the graph is static
  bool recorded_ = false;     // this rank knows what its passes use
  bool order_known_ = false;  // a backward has shown an order of arrival
  bool rebuilt_ = false;
  bool same_graph_ = true;
  std::int64_t own_passes_ = 0;
  std::vector<std::size_t> arrival_;
  ReducerReport report_;

  GradientHooks hooks_;  // the last member, so that they end first
};

}  // namespace lockstep
