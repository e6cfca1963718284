#pragma once

#include <filesystem>
#include <map>
#include <string>

namespace lockstep::bench {

inline constexpr const char* kRunSeconds = "run_seconds";
inline constexpr const char* kLaterEpoch = "epoch_seconds";

/// Reads the values of a run of two epochs or more from its summary.json.
///
/// Ten whole epochs are the first, which holds what starting costs, and nine like the mean of the
/// others. Where the run's epochs were shorter than CIFAR-100's, they are extrapolated by their
/// rate. Another summary is a DataError.
std::map<std::string, double> scaling_values(const std::filesystem::path& run);

}  // namespace lockstep::bench
