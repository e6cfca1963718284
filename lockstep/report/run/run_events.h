#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "lockstep/report/run/run_report.h"

namespace lockstep::bench {

/// Makes the content of an event file of TensorBoard from a run's curve over all restarts: each
/// step once, what rank 0 recorded.
std::string events_of_run(const RunReport& run);

/// Writes the events of each run into `directory`/NAME, NAME being that of its folder; what an
/// earlier call wrote there of the same run is replaced. Returns the files. Throws
/// InvalidArgument, before it writes anything, for runs of one name and a folder that is itself a
/// run's.
std::vector<std::filesystem::path> write_run_events(
    const std::vector<RunReport>& runs, const std::filesystem::path& directory);

}  // namespace lockstep::bench
