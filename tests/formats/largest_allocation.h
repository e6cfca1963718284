#pragma once

#include <cstddef>

namespace lockstep::testing {

/// Returns the bytes of the largest `new` of this thread since the last call; this test program
/// counts them all.
std::size_t take_largest_allocation();

}  // namespace lockstep::testing
