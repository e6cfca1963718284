#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include <torch/optim/optimizer.h>
#include <torch/types.h>

#include "lockstep/comm/process_group.h"
#include "lockstep/device/parameters.h"
#include "lockstep/parallel/optim/flat_shares.h"

namespace lockstep {

/// An optimizer whose work and state the ranks of a group share (ZeRO stage 1): each rank updates
/// the parameters that it owns, then all get all parameters.
///
/// It takes any LibTorch optimizer over all parameters and is one itself: param groups (all
/// parameters, options that a scheduler or the caller may change on every rank alike), zero_grad,
/// add_param_group; state() holds this rank's share. The updates are those of the plain optimizer,
/// bit for bit, if that treats each parameter by itself; a tied weight, which a group lists under
/// each of its names, is one parameter. The gradients must be equal on all ranks, as
/// DistributedDataParallel leaves them.
///
///     lockstep::ShardedOptimizer optimizer(
///         std::make_unique<torch::optim::Adam>(net->parameters(), options), world);
///
/// Note [Sharding]
/// The wrapped optimizer holds no parameters between steps. For a step it is lent this rank's
/// parameters, the groups' options and the state, so it keeps state for this share only. With the
/// first step the parameters' values move to memory that the group passes on without copying, see
/// Note [Flat shares].
class ShardedOptimizer final : public torch::optim::Optimizer, public SkippableStep {
 public:
  /// A collective. Throws InvalidArgument on every rank if the parameters differ in number, type or
  /// shape, if one is in two groups, or if the optimizer must see all at once (LBFGS).
  ShardedOptimizer(std::unique_ptr<torch::optim::Optimizer> optimizer, ProcessGroup group);

  /// Updates all parameters that have a gradient on their owner. A collective; calls the closure
  /// once on every rank and returns its loss, undefined without one.
  torch::Tensor step(LossClosure closure = nullptr) override;

  /// Says whether the wrapped optimizer can, for this rank's share.
  bool can_skip() const override;
  void step_unless(const torch::Tensor& skip) override;

  /// Returns, per group and parameter, the rank that updates it and keeps its state.
  std::vector<std::vector<int>> owners() const;

  /// Returns this rank's place among the owners.
  int rank() const { return group_.rank(); }

  /// Brings the whole state to one rank, so that state() and save() there are those of the plain
  /// optimizer; the next step forgets what others own. A collective.
  void consolidate_state(int to);

  /// Writes what the plain optimizer would, with the state that this rank has: all of it after
  /// consolidate_state.
  void save(torch::serialize::OutputArchive& archive) const override;

  /// Reads what a plain optimizer, or a sharded one over any number of ranks, has saved whole;
  /// keeps this rank's share. Call it on every rank.
  void load(torch::serialize::InputArchive& archive) override;

 private:
  using States = ska::flat_hash_map<void*, std::unique_ptr<torch::optim::OptimizerParamState>>;
  using Parameters = std::vector<std::vector<torch::Tensor>>;  // [group][parameter]

  class Lending;

  std::vector<Parameters> shares() const;  // per rank
  void update(const std::function<void()>& step_of_share);
  Parameters all_parameters() const;
  std::size_t number_of_parameters() const;
  void check_parameters();
  void forget_foreign_state();
  torch::Tensor own_state_bytes();
  void take_state_bytes(const torch::Tensor& bytes, int owner);

  std::unique_ptr<torch::optim::Optimizer> optimizer_;
  ProcessGroup group_;
  FlatShares flats_;
  std::size_t checked_parameters_ = 0;
};

/// Assigns every parameter of every group to a rank, with about equal numbers of elements.
///
/// PyTorch's rule (ZeroRedundancyOptimizer): group by group, the largest parameter first (of equal
/// ones the first), to the rank that has least so far (of equal ones the lowest). The same on all
/// ranks; a group added later changes no owner of those before. Throws InvalidArgument if ranks is
/// below 1.
std::vector<std::vector<int>> balanced_owners(
    const std::vector<std::vector<std::int64_t>>& elements, int ranks);

}  // namespace lockstep
