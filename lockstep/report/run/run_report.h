#pragma once

#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/record/profile/profile.h"
#include "lockstep/record/run_folder.h"
#include "lockstep/report/page/page.h"

namespace lockstep {

/// A run as it was read, and the curve that it makes.
struct RunReport {
  RunFolder folder;
  RunHistory history;
  std::optional<RunProfile> profile = {};  ///< with `--profile`
};

/// Reads a run's folder; throws as read_run_folder() does. Losses of epochs that summary.json
/// covers are its own, exact ones.
RunReport read_run_report(const std::filesystem::path& path);

/// A number of an epoch, with its names in JSON and in tables.
struct EpochField {
  std::string key;
  std::string title;
  std::function<std::optional<double>(const EpochHistory&)> value;
  std::optional<int> digits = 4;  ///< after the point; none: four that count
  bool is_score = false;          ///< compared between runs
  bool is_null_if_absent = true;  ///< in JSON; else it is left out

  /// Returns its text in a table, `-` without a value.
  std::string text(const EpochHistory& epoch) const;
};

/// All of them that runs of our own tasks have, in the order of tables and JSON.
const std::vector<EpochField>& epoch_fields();

/// Returns those, and a field for each number of a program's own that these epochs have.
std::vector<EpochField> epoch_fields_of(const RunHistory& history);

/// Describes a restart in a line: where the run resumed, and what had been lost.
std::string restart_text(const Restart& restart);

/// Writes runs as tables: one with all its epochs, several side by side.
std::string report_text(const std::vector<RunReport>& runs);

/// Writes the same as one JSON object on one line; what is not finite is `null` and named in
/// `nonfinite`.
std::string report_json(const std::vector<RunReport>& runs);

/// Makes the content of an event file of TensorBoard from a run's curve over all restarts: each
/// step once, what rank 0 recorded.
std::string events_of_run(const RunReport& run);

/// Writes the events of each run into `directory`/NAME, NAME being that of its folder; what an
/// earlier call wrote there of the same run is replaced. Returns the files. Throws
/// InvalidArgument, before it writes anything, for runs of one name and a folder that is itself a
/// run's.
std::vector<std::filesystem::path> write_run_events(
    const std::vector<RunReport>& runs, const std::filesystem::path& directory);

/// Returns the phases of a step as a timeline shows them, in their order.
std::vector<plot::Timeline::Kind> kinds_of_phases();

/// Returns the picture of one step of a rank, in milliseconds; the rank's timeline is not empty.
plot::Timeline timeline_of(const RankProfile& rank);

/// Returns the scores of the last test; those of summary.json where it has some.
const Scores& test_scores(const RunReport& run);

/// Returns a run as a page: its facts, the table of epochs, and figures of its scores by epoch, or
/// by step where there is one epoch.
page::Page page_of_run(const RunReport& run);

/// Writes RUN/report.html, one file that needs neither network nor script. Throws std::system_error
/// if the folder is not writable.
void write_run_page(const RunReport& run);

}  // namespace lockstep
