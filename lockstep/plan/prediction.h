#pragma once

#include <array>
#include <cstddef>
#include <string>
#include <vector>

#include "lockstep/core/enum_names.h"
#include "lockstep/plan/way.h"

namespace lockstep::plan {

/// The uses of a step's tasks.
enum class Use { kInput, kForward, kBackward, kCommunication, kOptimizer, kRest };
constexpr auto names_of(Use) {
  return std::array{EnumName{Use::kInput, "input"}, EnumName{Use::kForward, "forward"},
      EnumName{Use::kBackward, "backward"}, EnumName{Use::kCommunication, "communication"},
      EnumName{Use::kOptimizer, "optimizer"}, EnumName{Use::kRest, "other"}};
}
inline constexpr std::size_t kUses = names_of(Use{}).size();

/// A task of a step and when it happens, in seconds from the step's begin.
struct TimedTask {
  std::size_t lane = 0;
  Use use = Use::kRest;
  std::string name;
  double start = 0, end = 0;
};

/// One step of a way, as it is expected to go.
struct Prediction {
  Way way;
  double batch = 0;    ///< of all replicas
  double seconds = 0;  ///< of a step
  double spread = 0;   ///< by which it may be wrong: the standard deviation of its logarithm
  /// The part of it that other ways of the same profile do not share: ratios are surer than times.
  double own_spread = 0;
  /// The part that comes of a larger batch of a place than was measured, or, below 0, of a smaller
  /// one: ways on the same side share it.
  double outside_spread = 0;
  /// What the busiest place does with its time; with `idle` it adds up to `seconds`.
  std::array<double, kUses> uses = {};
  double idle = 0;           ///< waiting for other places
  double communication = 0;  ///< gradients or activations on their way
  double bubble = 0;         ///< share of the pipeline's time in which its places do not compute
  double memory_bytes = 0;   ///< of the place that needs most
  std::vector<std::string> lanes = {};
  std::vector<TimedTask> tasks = {};

  /// The seconds below and above which one training in twenty is expected.
  double least_seconds() const;
  double most_seconds() const;

  double samples_per_second() const { return seconds > 0 ? batch / seconds : 0; }
  /// Returns whether its batch of a place is larger or smaller than those that were measured.
  bool is_extrapolated() const { return outside_spread != 0; }
  double of(Use use) const { return uses[static_cast<std::size_t>(use)]; }
};

/// Predicts a step. Throws InvalidArgument that says what would do if the way is impossible: see
/// why_not().
///
/// Note [Prediction]
/// Replicas are equal, so one of them is simulated. Its layers take what the profile says for the
/// samples that it has, as many times longer as the busy places of its node slow each other down.
/// With `ddp` the gradients of a layer are there when its backward ends, shared over its time by
/// the bytes of its parameters; full buckets, cut by the very function that the reducer cuts with,
/// follow each other over the links. A link that a place's own core drives stops the place for its
/// share. A pipeline's schedule is the one that it executes, with the costs of each stage; places
/// that compute at the same time slow each other down, those that wait do not. With `fsdp` a unit
/// is gathered while the one before it computes, and its gradients are averaged while backward goes
/// on: within a copy of the model, then each place's part over the copies.
Prediction predict(
    const ModelProfile& profile, const Machine& machine, const Way& way, double batch);

/// Returns the bytes of the place that needs most: parameters, gradients, the optimizer's state,
/// what forward keeps for backward, the process, and what ddp needs to exchange gradients.
double memory_of(const ModelProfile& profile, const Machine& machine, const Way& way, double batch);

/// Returns how many layers each of the way's scheduled stages takes: the way's balance, or the cut
/// into the most equal times of a micro-batch.
std::vector<int> balance_of(const ModelProfile& profile, const Way& way, double batch);

}  // namespace lockstep::plan
