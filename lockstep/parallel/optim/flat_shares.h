#pragma once

#include <unordered_map>
#include <utility>
#include <vector>

#include <torch/types.h>

#include "lockstep/comm/process_group.h"

namespace lockstep {

/// The parameters of each owner, one after the other in memory of the group.
///
/// Note [Flat shares]
/// To broadcast many tensors is to pack them, to pass the pack on, and to unpack it: for ranks of
/// one host four copies, one owner after the other, which cost more than a sharded step saves. In
/// memory of the group, ProcessGroup::empty(), a share is passed on as it lies. So the parameters
/// are moved there: each stays the tensor that it was, and its values lie elsewhere. One whose
/// memory others share, or that has gaps, on any rank, stays where it is, and is packed. One that
/// has been moved since, as by Module::to(), is moved again; all ranks must have moved it.
/// torch::save() of one of them writes its neighbours' memory, too.
class FlatShares {
 public:
  using Shares = std::vector<std::vector<torch::Tensor>>;  ///< each owner's parameters

  explicit FlatShares(ProcessGroup group) : group_(std::move(group)) {}

  /// Gives all ranks the values that each owner's parameters have there. The parameters are the
  /// same in the same order on all. A collective.
  void broadcast(const Shares& shares);

 private:
  struct Flat {
    int owner;
    torch::Tensor memory;  ///< [elements]
    std::vector<torch::Tensor> parameters;
  };
  using Places = std::unordered_map<const void*, bool>;  ///< whether in a flat, by parameter

  void forget_moved(const Shares& shares);
  void place_new(const Shares& shares);
  void place(int owner, const std::vector<torch::Tensor>& share);
  std::vector<bool> agreed(const std::vector<torch::Tensor>& parameters) const;
  Places places() const;

  ProcessGroup group_;
  std::vector<Flat> flats_;
  std::vector<torch::Tensor> packed_;  ///< those that stay where they are
};

}  // namespace lockstep
