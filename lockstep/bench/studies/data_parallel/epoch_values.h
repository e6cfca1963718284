#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>

namespace lockstep::bench {

/// Reads the values of a run of two epochs from its summary.json.
///
/// `images` is how many a whole epoch has. Where the run's epochs were shorter, `epoch_share` is
/// the part of them, and times are extrapolated: the second epoch by its rate, the first by the
/// same rate and what it took longer, which is what starting cost. Another summary is a DataError.
std::map<std::string, double> epoch_values(const std::filesystem::path& run, std::int64_t images);

}  // namespace lockstep::bench
