#pragma once

#include <filesystem>
#include <map>
#include <string>

namespace lockstep::bench {

/// Reads what a sample cost from a run's metrics.jsonl and summary.json. The steps of the first
/// line are left out: they pay for memory, kernels and buckets. Fewer than two lines are a
/// DataError.
std::map<std::string, double> step_values(const std::filesystem::path& run);

}  // namespace lockstep::bench
