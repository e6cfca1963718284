#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <torch/types.h>

#include "lockstep/comm/reduce_op.h"
#include "lockstep/comm/work.h"
#include "lockstep/core/error.h"
#include "lockstep/liveness/own_slot.h"

namespace lockstep {

/// Stands for the sender of a recv() that takes a message of any rank.
inline constexpr int kAnyRank = -1;

/// A collective, or a message to or from one rank, as this rank calls it.
///
/// Tensors are contiguous and of one element type, roots and peers are ranks of the group, sizes
/// fit (see ProcessGroup for each). A tensor that is read and written is both input and output.
struct CollectiveCall {
  Operation kind;
  torch::Tensor output = {};  ///< undefined where this rank receives nothing
  torch::Tensor input = {};   ///< undefined where this rank contributes nothing
  ReduceOp op = ReduceOp::kSum;
  int root = -1;
  int peer = -1;  ///< of a message
  int tag = 0;    ///< of a message

  const char* name() const { return name_of(kind); }
  /// Returns the input, or the output on a rank without one.
  const torch::Tensor& tensor() const { return input.defined() ? input : output; }
  bool has_one_tensor() const {
    return !input.defined() || !output.defined() || input.is_same(output);
  }
  bool is_message() const { return kind == Operation::kSend || kind == Operation::kRecv; }
  bool reduces() const {
    return kind == Operation::kAllReduce || kind == Operation::kReduce ||
           kind == Operation::kReduceScatter;
  }
};

/// Carries the collectives of one group; ProcessGroup checks the arguments and is what users see.
class Backend {
 public:
  Backend(int rank, int size) : rank_(rank), size_(size) {}
  virtual ~Backend() = default;
  Backend(const Backend&) = delete;
  Backend& operator=(const Backend&) = delete;

  virtual std::string name() const = 0;
  /// Names the engine that carries tensors of an accelerator; empty without one.
  virtual std::string device_name() const { return ""; }
  int rank() const { return rank_; }
  virtual int size() const { return size_; }
  /// Returns whether tensors on this device can be passed.
  virtual bool carries(torch::Device device) const { return device.is_cpu(); }
  /// Lets a recv take the next message that has its tag, as in Python's PyTorch, where it would
  /// take the next one of all. To be called before there are messages.
  virtual void match_tags() {}
  /// Returns whether a message may be received from kAnyRank.
  virtual bool receives_from_any() const { return false; }
  /// Returns whether the bits of a sum are those of the ranks' values in order, wherever in a
  /// tensor the element lies. A ring of more than two adds the elements of each part in another
  /// order.
  virtual bool sums_in_rank_order() const { return size_ <= 2; }
  /// Returns the type in which elements of this one are reduced on the device: the same, or a wider
  /// one to which ProcessGroup converts them. Nothing if they are not: they are only moved.
  virtual std::optional<at::ScalarType> reduced_as(
      torch::Device device, at::ScalarType type, ReduceOp op) const;

  /// Begins a call, and records it if the group is recorded.
  Work run(const CollectiveCall& call);

  /// Makes a group of these ranks, in this order. All ranks call it at once, each with the members
  /// of its group.
  std::shared_ptr<Backend> subgroup(const std::vector<int>& members);

  /// Makes a flat tensor in memory that this backend reduces without copying. A collective.
  torch::Tensor empty(std::int64_t elements, const torch::TensorOptions& options);

  /// Makes such a tensor without the other ranks. The first collective on it maps its memory.
  virtual torch::Tensor allocate(std::int64_t elements, const torch::TensorOptions& options) {
    return torch::empty({elements}, options);
  }

  virtual void abort(const std::string& reason) = 0;
  virtual std::chrono::milliseconds timeout() const { return timeout_; }
  virtual void set_timeout(std::chrono::milliseconds timeout) { timeout_ = timeout; }

  /// Records each call from now on where the launcher of this process reads it, so that it can say
  /// of a rank that hangs in which collective the others wait for it. The groups made of this one
  /// are recorded, too. An empty record changes nothing.
  void record(GroupRecord record) {
    if (!record.is_empty()) record_.emplace(std::move(record));
  }

  Work all_reduce(const torch::Tensor& tensor, ReduceOp op) {
    return run({.kind = Operation::kAllReduce, .output = tensor, .input = tensor, .op = op});
  }
  Work reduce(const torch::Tensor& tensor, int root, ReduceOp op) {
    return run({.kind = Operation::kReduce,
        .output = rank_ == root ? tensor : torch::Tensor(),
        .input = tensor,
        .op = op,
        .root = root});
  }
  Work broadcast(const torch::Tensor& tensor, int root) {
    const bool is_root = rank_ == root;
    return run({.kind = Operation::kBroadcast,
        .output = is_root ? torch::Tensor() : tensor,
        .input = is_root ? tensor : torch::Tensor(),
        .root = root});
  }
  Work all_gather(const torch::Tensor& output, const torch::Tensor& input) {
    return run({.kind = Operation::kAllGather, .output = output, .input = input});
  }
  Work gather(const torch::Tensor& output, const torch::Tensor& input, int root) {
    return run({.kind = Operation::kGather, .output = output, .input = input, .root = root});
  }
  Work scatter(const torch::Tensor& output, const torch::Tensor& input, int root) {
    return run({.kind = Operation::kScatter, .output = output, .input = input, .root = root});
  }
  Work reduce_scatter(const torch::Tensor& output, const torch::Tensor& input, ReduceOp op) {
    return run({.kind = Operation::kReduceScatter, .output = output, .input = input, .op = op});
  }
  Work all_to_all(const torch::Tensor& output, const torch::Tensor& input) {
    return run({.kind = Operation::kAllToAll, .output = output, .input = input});
  }
  Work send(const torch::Tensor& tensor, int to, int tag) {
    return run({.kind = Operation::kSend, .input = tensor, .peer = to, .tag = tag});
  }
  Work recv(const torch::Tensor& tensor, int from, int tag) {
    return run({.kind = Operation::kRecv, .output = tensor, .peer = from, .tag = tag});
  }
  Work barrier() { return run({.kind = Operation::kBarrier}); }

 protected:
  // What the calls of the same name do, without a record: a backend's internal calls are not
  // recorded.
  virtual Work begin(const CollectiveCall& call) = 0;
  virtual std::shared_ptr<Backend> make_subgroup(const std::vector<int>& members) = 0;
  virtual torch::Tensor make_empty(std::int64_t elements, const torch::TensorOptions& options) {
    return torch::empty({elements}, options);
  }

  const int rank_, size_;
  std::atomic<std::chrono::milliseconds> timeout_ =
      std::chrono::milliseconds(std::chrono::minutes(5));

 private:
  std::optional<GroupRecord> record_;
  int recorded_subgroups_ = 0;
};

/// Returns the place of a rank among the members of a subgroup that it makes.
int place_among(const std::vector<int>& members, int rank);

/// Records the calls of the group of all ranks, see Backend::record(); returns it.
std::shared_ptr<Backend> recorded_world(std::shared_ptr<Backend> backend);

/// A group of one: reductions change nothing, the rest copies input to output.
class SingleBackend : public Backend {
 public:
  /// `asked_for`: the caller chose a group of one; otherwise it may be an oversight.
  explicit SingleBackend(bool asked_for = true) : Backend(0, 1), asked_for_(asked_for) {}

  std::string name() const override { return "single"; }
  int size() const override;
  bool carries(torch::Device) const override { return true; }
  void abort(const std::string&) override {}

 protected:
  Work begin(const CollectiveCall& call) override;
  std::shared_ptr<Backend> make_subgroup(const std::vector<int>&) override {
    return std::make_shared<SingleBackend>();
  }

 private:
  bool asked_for_;
};

/// Notes that this process has called init_process_group(). Without it a SingleBackend that nobody
/// asked for warns on stderr, once, when a launcher started several ranks: each would train a
/// separate copy, without a word.
void note_init();

}  // namespace lockstep
