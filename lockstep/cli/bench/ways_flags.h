#pragma once

#include <string>
#include <vector>

#include "lockstep/cli/bench/bench_flags.h"
#include "lockstep/core/flag_table.h"

namespace lockstep::cli {

/// Returns the flags of the grid of `lockstep bench ways`.
FlagGroup<BenchCommand> ways_flags();

/// Takes the words after `--`, which go to each `lockstep train`, as far as they are its flags,
/// with values that it takes, and not those that the bench itself gives. Throws InvalidArgument
/// that names the flag.
void take_train_flags(BenchCommand& command, const std::vector<std::string>& words);

/// Makes the request for that study whole; for another one none of its flags may have been given.
/// Throws InvalidArgument that names the flag.
void resolve_ways(BenchCommand& command, const GivenFlags& given);

}  // namespace lockstep::cli
