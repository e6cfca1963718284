#pragma once

#include <string>
#include <vector>

#include "lockstep/bench/run_folder.h"
#include "lockstep/bench/run_history.h"

namespace lockstep::bench {

/// Is a run as it was read, and the curve that it makes.
struct RunReport {
  RunFolder folder;
  RunHistory history;
};

/// Reads a run's folder; throws as read_run_folder() does. Losses of epochs that summary.json
/// covers are its own, exact ones.
RunReport read_run_report(const std::filesystem::path& path);

/// Writes runs as tables: one with all its epochs, several side by side.
std::string report_text(const std::vector<RunReport>& runs);

/// Writes the same as one JSON object on one line; what is not finite is `null` and named in
/// `nonfinite`.
std::string report_json(const std::vector<RunReport>& runs);

}  // namespace lockstep::bench
