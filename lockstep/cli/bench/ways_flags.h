#pragma once

#include "lockstep/cli/bench/bench_flags.h"
#include "lockstep/core/flag_table.h"

namespace lockstep::cli {

/// Returns the flags of the grid of `lockstep bench ways`.
FlagGroup<BenchCommand> ways_flags();

/// Makes the request for that study whole; for another one none of its flags may have been given.
/// Throws InvalidArgument that names the flag.
void resolve_ways(BenchCommand& command, const GivenFlags& given);

}  // namespace lockstep::cli
