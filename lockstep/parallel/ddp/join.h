#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include <torch/arg.h>
#include <torch/types.h>

#include "lockstep/comm/process_group.h"
#include "lockstep/core/error.h"

namespace lockstep {

/// The treatment of ranks with fewer inputs than others, equal on all ranks.
struct JoinOptions {
  /// Divides gradients by the number of all ranks to the end, so that every sample weighs the same;
  /// otherwise by the number of those that still have inputs.
  TORCH_ARG(bool, divide_by_initial_world_size) = true;
  /// Throws UnevenInputs on all ranks as soon as one has ended. Needed where forward has
  /// other collectives, for example in SyncBatchNorm.
  TORCH_ARG(bool, throw_on_early_termination) = false;
};

/// Thrown on all ranks when some have no inputs left.
class UnevenInputs : public Error {
 public:
  using Error::Error;
};

/// A scope in which ranks may make unequal numbers of collectives: those that have ended shadow the
/// others' collectives until all have ended.
///
/// Before each collective, or group of them, every rank that takes part announces it, by one small
/// all-gather; a rank that has ended takes part in that and then does what was announced, without
/// contributing.
///
///     lockstep::Join join(world);
///     const auto total = join.add("total", [&](const auto&) {
///       world.all_reduce(torch::zeros({1})).wait();
///     });
///     for (auto& batch : mine) {
///       join.announce(total);
///       world.all_reduce(count_of(batch)).wait();
///     }
///     join.finish();
class Join {
 public:
  /// The ranks that take part, in ascending order.
  using Participants = std::vector<int>;
  /// Does the same collectives as the participants, contributing nothing.
  using Shadow = std::function<void(const Participants&)>;

  /// What is announced travels on the device, which must be one that the group carries.
  explicit Join(
      ProcessGroup group, const JoinOptions& options = {}, torch::Device device = torch::kCPU);

  /// Makes a kind of collective known and returns its number; all ranks add the same, in the same
  /// order.
  std::size_t add(std::string name, Shadow shadow);

  /// Announces what comes next to those that have ended; returns the ranks that take part. Throws
  /// UnevenInputs if some have ended and the options ask for it, Error if the ranks announce
  /// different things.
  Participants announce(std::size_t collective);

  /// Shadows the others until they have all ended. Returns the rank whose state counts, the same on
  /// all ranks: the last to end, and the highest of several. Throws UnevenInputs as announce().
  int finish();

 private:
  struct Kind {
    std::string name;
    Shadow shadow;
  };

  std::vector<std::int64_t> exchange(std::int64_t own) const;
  Participants participants(const std::vector<std::int64_t>& announced) const;

  ProcessGroup group_;
  JoinOptions options_;
  torch::Device device_;
  std::vector<Kind> kinds_;
};

}  // namespace lockstep
