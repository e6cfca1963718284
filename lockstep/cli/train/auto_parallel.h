#pragma once

#include <string>
#include <vector>

namespace lockstep::cli {

/// Returns the flags of `lockstep train` without `--parallel auto`. A run that is continued keeps
/// its way of spreading; for a new one this becomes `lockstep plan --train`, which measures, and
/// trains with the fastest way. Throws InvalidArgument in a rank of a launcher, whose number is
/// decided already.
std::vector<std::string> resolve_auto_parallel(const std::vector<std::string>& arguments);

}  // namespace lockstep::cli
