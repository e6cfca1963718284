#pragma once

#include <string>
#include <string_view>

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

/// One entry of a schedule. The stage is the one that acts, also for transfers: the stage that
/// sends, the stage that receives.
struct Action {
  int stage = 0;
  ActionKind kind = ActionKind::kForward;
  int micro_batch = 0;

  friend bool operator==(const Action&, const Action&) = default;
};

/// Returns whether the action computes; the others transfer.
bool is_compute(ActionKind kind);

/// Returns an action as PyTorch writes it: `1F0`, `2I1`, `0W3`, `0B3`, `2SEND_B2`, `1RECV_F1`.
std::string to_string(const Action& action);

/// Reads what to_string writes. Throws InvalidArgument that repeats the text.
Action parse_action(std::string_view text);

}  // namespace lockstep
