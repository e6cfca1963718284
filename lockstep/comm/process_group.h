#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <torch/types.h>

#include "lockstep/comm/reduce_op.h"
#include "lockstep/comm/work.h"

namespace lockstep {

class Backend;

/// A set of ranks that compute together, and this process's (or thread's) place among them.
///
/// A small value: copies name the same group. Every rank must make the same calls in the same
/// order. A group of one makes every collective a no-op, so the same program runs alone.
///
/// Elements of every type but complex are moved. Reduced are floats of 16 to 64 bits, signed whole
/// numbers, bytes, and bools, of which a sum is `or` and a product `and`; other types are refused.
/// 16 bits are added up in 32 and rounded once (on hosts of as many ranks each, a mean is rounded
/// for each host first), and a NaN of any rank shows on all; NCCL has rules of its own.
///
///     auto world = lockstep::init_process_group();
///     world.all_reduce(loss, lockstep::ReduceOp::kMean).wait();
class ProcessGroup {
 public:
  /// Makes a group of one. Under a launcher, init_process_group() gives the group of all ranks;
  /// using this one without it prints a warning on stderr, once.
  ProcessGroup();
  explicit ProcessGroup(std::shared_ptr<Backend> backend);

  int rank() const;
  int size() const;

  /// Names the backend that carries the collectives: `single`, `threads`, `shm`, `gloo` or
  /// `hierarchical`.
  std::string backend_name() const;

  /// Makes a group of the same ranks that also carries tensors of accelerators: by an engine of
  /// their own (NCCL), or through the host's memory where there is none. `devices` are those of one
  /// type that this rank computes on, as many on each rank; the CPU stands for none. A collective.
  ///
  /// With tensors of an accelerator a collective takes what the current stream has been given, and
  /// wait() lets the current stream wait for it, as in PyTorch.
  ProcessGroup with_devices(const std::vector<torch::Device>& devices) const;
  ProcessGroup with_device(torch::Device device) const { return with_devices({device}); }

  /// Names the engine that carries tensors of an accelerator: `nccl`, `staged`; empty without one.
  std::string device_backend_name() const;

  /// Returns whether the bits of a sum depend on the ranks' values alone, and not on where in a
  /// tensor they lie: so it is with `threads` and `shm`, and with two ranks or two hosts.
  bool sums_in_rank_order() const;

  /// Reduces in place: afterwards all ranks hold the same values, bit for bit.
  Work all_reduce(const torch::Tensor& tensor, ReduceOp op = ReduceOp::kSum) const;

  /// Reduces into the tensor of the root; the tensors of the others are left as they were.
  Work reduce(const torch::Tensor& tensor, int root, ReduceOp op = ReduceOp::kSum) const;

  /// Copies the root's tensor to all ranks.
  Work broadcast(const torch::Tensor& tensor, int root) const;

  /// Concatenates the inputs of all ranks, in rank order, into the output.
  Work all_gather(const torch::Tensor& output, const torch::Tensor& input) const;

  /// As all_gather, at the root only; the others pass an undefined output.
  Work gather(const torch::Tensor& output, const torch::Tensor& input, int root) const;

  /// Gives rank r the r-th of size() equal pieces of the root's input, undefined on the others.
  Work scatter(const torch::Tensor& output, const torch::Tensor& input, int root) const;

  /// Reduces the inputs of all ranks; rank r gets the r-th of size() equal pieces of the result.
  Work reduce_scatter(
      const torch::Tensor& output, const torch::Tensor& input, ReduceOp op = ReduceOp::kSum) const;

  /// Gives rank r the r-th equal piece of each rank's input, in rank order.
  Work all_to_all(const torch::Tensor& output, const torch::Tensor& input) const;

  /// Sends to one rank; messages between two ranks arrive in the order of their sending and must
  /// meet a recv of the same tag, type and size.
  Work send(const torch::Tensor& tensor, int to, int tag = 0) const;
  Work recv(const torch::Tensor& tensor, int from, int tag = 0) const;

  /// Completes when every rank has called it.
  Work barrier() const;

  /// Makes the groups of those ranks that pass the same colour, ordered by key, then by rank. A
  /// collective: all ranks of this group must call it.
  ProcessGroup split(int color, int key) const;

  /// Makes an uninitialised one-dimensional tensor in memory that this group reduces without
  /// copying. A collective.
  torch::Tensor empty(std::int64_t elements, const torch::TensorOptions& options) const;

  /// Makes every collective of every rank fail, so that none waits for this rank. On one host all
  /// learn the reason; over Gloo, the others see that the connection is closed.
  void abort(const std::string& reason) const;

  std::chrono::milliseconds timeout() const;
  void set_timeout(std::chrono::milliseconds timeout) const;

 private:
  std::shared_ptr<Backend> backend_;
};

/// Runs the body once per rank, each rank a thread of this process with its place in a common
/// group.
///
/// When one throws, the collectives of the others fail, and the first exception is thrown here once
/// all have ended.
///
///     lockstep::run_ranks(2, [](lockstep::ProcessGroup world) { ... });
void run_ranks(int size, const std::function<void(ProcessGroup)>& body);

}  // namespace lockstep
