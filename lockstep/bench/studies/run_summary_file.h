#pragma once

#include <filesystem>
#include <optional>

#include "lockstep/bench/run_folder.h"

namespace lockstep::bench {

/// Reads the summary.json that a sample's run left; without one a DataError.
SummaryFacts read_run_summary(const std::filesystem::path& run);

/// Gives a value, or NaN where there is none: what a sample notes as `null`.
double or_nan(const std::optional<double>& value);

}  // namespace lockstep::bench
