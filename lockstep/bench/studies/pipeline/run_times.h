#pragma once

#include <filesystem>
#include <map>
#include <string>

namespace lockstep::bench {

inline constexpr const char* kRunSeconds = "run_seconds";    ///< mean over the repeats
inline constexpr const char* kRunVariance = "run_variance";  ///< of the repeats, in seconds squared
inline constexpr const char* kRunRepeats = "repeats";
inline constexpr const char* kPeakMemory = "peak_memory_bytes";

/// Reads from metrics.jsonl, which must have a line for each step, how long runs of so many steps
/// took after the first step, which warms up; and from summary.json the peak of the memory. Steps
/// that are left over are no run. Without a whole run, or with lines that are missing, a DataError.
std::map<std::string, double> pipeline_values(const std::filesystem::path& run, int batches);

}  // namespace lockstep::bench
