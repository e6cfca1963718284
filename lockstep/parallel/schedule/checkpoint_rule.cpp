#include "lockstep/parallel/schedule/checkpoint_rule.h"

namespace lockstep {

const char* name_of(Checkpoint checkpoint) {
  switch (checkpoint) {
    case Checkpoint::kNever:
      return "never";
    case Checkpoint::kExceptLast:
      return "except-last";
    case Checkpoint::kAlways:
      return "always";
  }
  return "?";
}

bool recomputes(Checkpoint checkpoint, int micro_batch, int micro_batches) {
  if (checkpoint == Checkpoint::kExceptLast) return micro_batch + 1 < micro_batches;
  return checkpoint == Checkpoint::kAlways;
}

}  // namespace lockstep
