#pragma once

namespace lockstep {

/// Says for which micro-batches a stage keeps only its inputs and computes the activations again
/// when backward needs them.
enum class Checkpoint {
  kNever,
  kExceptLast,  ///< the last one's backward follows its forward closely in most schedules
  kAlways
};

/// Gives the name on the command line: never, except-last, always.
const char* name_of(Checkpoint checkpoint);

/// Says whether the micro-batch is computed again.
bool recomputes(Checkpoint checkpoint, int micro_batch, int micro_batches);

}  // namespace lockstep
