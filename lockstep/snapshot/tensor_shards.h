#pragma once

#include <string>

#include "lockstep/formats/weights/tensor_parts.h"
#include "lockstep/snapshot/snapshot_saver.h"

// What the ranks of a sharded run give to the files of a snapshot.

namespace lockstep {

/// Finds the range of a tensor or of what an optimizer keeps for it, such as `fc.weight/exp_avg`;
/// null if ranks do not share it, as those without elements.
const TensorRange* range_of(const std::string& name, const TensorRanges& ranges);

/// Returns whether a value of an optimizer's state counts steps: then it is a scalar that all ranks
/// have alike.
bool counts_steps(const std::string& name);

/// Leaves in the content of a rank's file what no other rank writes, and marks what is a part.
///
/// Tensors in `ranges`, and what the optimizer keeps for them, have the elements of their range
/// alone. A count of steps is written by the rank with the tensor's first element; what is in no
/// range by the one that `is_first`. A tensor of another size than its range is an InvalidArgument.
SnapshotContent shard_of(SnapshotContent content, const TensorRanges& ranges, bool is_first);

}  // namespace lockstep
