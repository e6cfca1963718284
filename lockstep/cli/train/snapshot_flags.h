#pragma once

#include <optional>
#include <string>

#include <CLI/App.hpp>

#include "lockstep/train/options/snapshot_settings.h"

namespace lockstep::cli {

/// Is what the flags about snapshots say.
struct SnapshotTexts {
  std::string resume = "never";
  std::optional<std::string> interval, overhead;
  int keep = 2;
  bool required = false;
};

/// Declares the flags.
void add_snapshot_flags(CLI::App& app, SnapshotTexts& texts);

/// Reads when a run is saved. Throws InvalidArgument that shows the accepted forms.
SnapshotSettings snapshots_of(const SnapshotTexts& texts);

/// Reads what a run begins with. Ranks that a launcher started again go on where they were,
/// whatever the flag says of their first start.
ResumeSettings resume_of(const SnapshotTexts& texts, int restart_count);

}  // namespace lockstep::cli
