#pragma once

#include <array>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/core/enum_names.h"

namespace lockstep {

/// The work of a rank on one micro-batch in one stage of a pipeline.
enum class ActionKind {
  kForward,
  kBackward,        ///< the gradients of input and weights together
  kBackwardInput,   ///< the gradient of the stage's input, which the stage before waits for
  kBackwardWeight,  ///< the gradients of the weights, which nobody waits for
  kSendForward,     ///< the stage's output, to the stage after
  kReceiveForward,  ///< the stage's input, from the stage before
  kSendBackward,    ///< the gradient of the stage's input, to the stage before
  kReceiveBackward  ///< the gradient of the stage's output, from the stage after
};

/// As PyTorch writes them.
constexpr auto names_of(ActionKind) {
  using K = ActionKind;
  return std::array{EnumName{K::kForward, "F"}, EnumName{K::kBackward, "B"},
      EnumName{K::kBackwardInput, "I"}, EnumName{K::kBackwardWeight, "W"},
      EnumName{K::kSendForward, "SEND_F"}, EnumName{K::kReceiveForward, "RECV_F"},
      EnumName{K::kSendBackward, "SEND_B"}, EnumName{K::kReceiveBackward, "RECV_B"}};
}

/// One entry of a schedule. The stage is the one that acts, also for transfers: the stage that
/// sends, the stage that receives.
struct Action {
  int stage = 0;
  ActionKind kind = ActionKind::kForward;
  int micro_batch = 0;

  friend bool operator==(const Action&, const Action&) = default;
};

/// Returns whether the action computes; the others transfer.
constexpr bool is_compute(ActionKind kind) { return kind <= ActionKind::kBackwardWeight; }

/// Returns an action as PyTorch writes it: `1F0`, `2I1`, `0W3`, `0B3`, `2SEND_B2`, `1RECV_F1`.
std::string to_string(const Action& action);

/// Reads what to_string writes. Throws InvalidArgument that repeats the text.
Action parse_action(std::string_view text);

/// The order in which the stages of a pipeline take the micro-batches.
enum class ScheduleKind {
  kSequential,   ///< model parallel: one micro-batch goes all the way there and back, then the next
  kGPipe,        ///< all forwards, then all backwards, first micro-batch first
  k1F1B,         ///< one forward, one backward as soon as possible: few live activations
  kInterleaved,  ///< 1F1B over several stages a rank, a smaller bubble, more transfers
  kZeroBubble    ///< ZB-H1: the weights' gradients fill the idle time of 1F1B
};

constexpr auto names_of(ScheduleKind) {
  using Kind = ScheduleKind;
  return std::array{EnumName{Kind::kSequential, "sequential"}, EnumName{Kind::kGPipe, "gpipe"},
      EnumName{Kind::k1F1B, "1f1b"}, EnumName{Kind::kInterleaved, "interleaved"},
      EnumName{Kind::kZeroBubble, "zero-bubble"}};
}

/// The micro-batches of a batch, unless the user says otherwise.
inline constexpr int kDefaultChunks = 8;

/// Returns the kind of that name. Throws InvalidArgument that repeats the name and lists those that
/// exist.
ScheduleKind schedule_kind(std::string_view name);

/// The actions of every rank of a pipeline in one step, in order; idle time is not written.
struct Schedule {
  ScheduleKind kind = ScheduleKind::kSequential;
  int stages = 0;
  int ranks = 0;
  int micro_batches = 0;
  std::vector<std::vector<Action>> actions;  ///< per rank

  /// Returns the rank that computes a stage: stages go round the ranks.
  int rank_of(int stage) const { return stage % ranks; }

  friend bool operator==(const Schedule&, const Schedule&) = default;
};

/// Makes the schedule of one step, without transfers; stage s is on rank s % ranks.
///
/// Interleaved and zero-bubble take any multiple of the ranks as stages, the others as many stages
/// as ranks. Any number of micro-batches from 1 up is legal, also fewer than stages. Throws
/// InvalidArgument that says which numbers would do.
Schedule make_schedule(ScheduleKind kind, int ranks, int stages, int micro_batches);

/// The behaviour of a receive in a schedule, and so its place.
enum class Receives {
  /// It only announces that a value may come; the action that needs the value waits. It comes as
  /// early as the send does, so that transfer and computation overlap. PyTorch's order.
  kPosted,
  /// It waits for the value, and so comes directly before the action that needs the value.
  kBlocking
};

/// Inserts sends and receives wherever neighbouring stages are on different ranks; a send directly
/// follows the action that computes its value.
///
/// The lists of kPosted cannot deadlock even if sends and receives both wait, but that is slow:
/// 1F1B of 2 ranks and 8 micro-batches takes 40 units of time instead of 27. With kBlocking a send
/// must not wait.
Schedule with_transfers(const Schedule& schedule, Receives receives = Receives::kPosted);

/// Replaces a BackwardInput that is directly followed by its own BackwardWeight with one Backward:
/// cheaper to compute, but the stage before gets its gradient later.
Schedule with_merged_backward(const Schedule& schedule);

/// Checks that the schedule computes every micro-batch of every stage exactly once, forward before
/// backward, on the stage's rank, and that no rank waits forever. Throws InvalidArgument that
/// names rank and action.
void check_schedule(const Schedule& schedule);

/// The micro-batches of which a stage keeps only the inputs and computes the activations again when
/// backward needs them.
enum class Checkpoint {
  kNever,
  kExceptLast,  ///< the last one's backward follows its forward closely in most schedules
  kAlways
};

constexpr auto names_of(Checkpoint) {
  return std::array{EnumName{Checkpoint::kNever, "never"},
      EnumName{Checkpoint::kExceptLast, "except-last"}, EnumName{Checkpoint::kAlways, "always"}};
}

/// Returns whether the micro-batch is computed again.
bool recomputes(Checkpoint checkpoint, int micro_batch, int micro_batches);

}  // namespace lockstep
