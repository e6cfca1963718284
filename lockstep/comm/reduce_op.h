#pragma once

namespace lockstep {

/// Names what a reduction does with the values of all ranks; always in rank order, so results
/// repeat bit for bit.
enum class ReduceOp { kSum, kMean, kProduct, kMin, kMax, kAnd, kOr, kXor };

}  // namespace lockstep
