#pragma once

namespace lockstep {

/// The operation of a reduction on the values of all ranks; in rank order, so results repeat
/// exactly.
enum class ReduceOp { kSum, kMean, kProduct, kMin, kMax, kAnd, kOr, kXor };

}  // namespace lockstep
