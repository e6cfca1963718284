#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <torch/types.h>

#include "lockstep/comm/reduce_op.h"
#include "lockstep/comm/work.h"

namespace lockstep {

/// Carries the collectives of one group; ProcessGroup checks the arguments and is what users see.
///
/// Tensors are contiguous and of one element type, roots and peers are ranks of the group, sizes
/// fit (see ProcessGroup for each). Undefined tensors come only where ProcessGroup says so.
class Backend {
 public:
  virtual ~Backend() = default;

  virtual std::string name() const = 0;
  /// Names the engine that carries tensors of an accelerator; empty without one.
  virtual std::string device_name() const { return ""; }
  virtual int rank() const = 0;
  virtual int size() const = 0;
  /// Returns whether tensors on this device can be passed.
  virtual bool carries(torch::Device device) const = 0;
  /// Returns whether the bits of a sum are those of the ranks' values in order, wherever in a
  /// tensor the element lies. A ring adds the elements of each part in another order.
  virtual bool sums_in_rank_order() const = 0;
  /// Returns the type in which elements of this one are reduced on the device: the same, or a wider
  /// one to which ProcessGroup converts them. Nothing if they are not: they are only moved.
  virtual std::optional<at::ScalarType> reduced_as(
      torch::Device device, at::ScalarType type, ReduceOp op) const;

  virtual Work all_reduce(const torch::Tensor& tensor, ReduceOp op) = 0;
  virtual Work reduce(const torch::Tensor& tensor, int root, ReduceOp op) = 0;
  virtual Work broadcast(const torch::Tensor& tensor, int root) = 0;
  virtual Work all_gather(const torch::Tensor& output, const torch::Tensor& input) = 0;
  virtual Work gather(const torch::Tensor& output, const torch::Tensor& input, int root) = 0;
  virtual Work scatter(const torch::Tensor& output, const torch::Tensor& input, int root) = 0;
  virtual Work reduce_scatter(
      const torch::Tensor& output, const torch::Tensor& input, ReduceOp op) = 0;
  virtual Work all_to_all(const torch::Tensor& output, const torch::Tensor& input) = 0;
  virtual Work send(const torch::Tensor& tensor, int to, int tag) = 0;
  virtual Work recv(const torch::Tensor& tensor, int from, int tag) = 0;
  virtual Work barrier() = 0;

  /// Makes a group of these ranks, in this order. All ranks call it at once, each with the members
  /// of its group.
  virtual std::shared_ptr<Backend> subgroup(const std::vector<int>& members) = 0;

  /// Makes a flat tensor in memory that this backend reduces without copying. A collective.
  virtual torch::Tensor empty(std::int64_t elements, const torch::TensorOptions& options) = 0;

  virtual void abort(const std::string& reason) = 0;
  virtual std::chrono::milliseconds timeout() const = 0;
  virtual void set_timeout(std::chrono::milliseconds timeout) = 0;
};

}  // namespace lockstep
