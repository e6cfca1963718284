#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/record/profile/profile.h"
#include "lockstep/record/run_folder.h"
#include "lockstep/record/run_history.h"

namespace lockstep::bench {

/// A run as it was read, and the curve that it makes.
struct RunReport {
  RunFolder folder;
  RunHistory history;
  std::optional<RunProfile> profile = {};  ///< with `--profile`
};

/// Reads a run's folder; throws as read_run_folder() does. Losses of epochs that summary.json
/// covers are its own, exact ones.
RunReport read_run_report(const std::filesystem::path& path);

/// A column of the table of epochs: its head, and its text for an epoch, `-` without a value.
struct EpochColumn {
  std::string head;
  std::function<std::string(const EpochHistory&)> text;
};
const std::vector<EpochColumn>& epoch_columns();

/// Describes a restart in a line: where the run resumed, and what had been lost.
std::string restart_text(const Restart& restart);

/// Writes runs as tables: one with all its epochs, several side by side.
std::string report_text(const std::vector<RunReport>& runs);

/// Writes the same as one JSON object on one line; what is not finite is `null` and named in
/// `nonfinite`.
std::string report_json(const std::vector<RunReport>& runs);

}  // namespace lockstep::bench
