#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep {

/// The folder of a run that holds its snapshots.
inline constexpr const char* kSnapshots = "snapshots";

inline constexpr const char* kManifest = "manifest.json";

/// The file of a snapshot that holds what is not a tensor.
inline constexpr const char* kStateFile = "state.json";

/// The files beside the snapshots that name one of them.
inline constexpr const char* kLatest = "LATEST";
inline constexpr const char* kBest = "best";

/// Returns `step-00001200`; a step has no sign.
std::string snapshot_name(std::int64_t step);

/// Returns the step of a snapshot's name; nothing if it is not letter for letter what
/// snapshot_name() gives.
std::optional<std::int64_t> step_of(std::string_view name);

/// Returns a run's snapshots, complete or not, the one of the highest step first.
std::vector<std::filesystem::path> snapshots_newest_first(const std::filesystem::path& run);

/// Draws a name for the folder in which a snapshot is written: `.step-00001200.x7Zk2q`.
std::string aside_name(std::int64_t step);

/// Returns the one name of that kind under which a rank that has lost the others saves the step, so
/// that of several one does: `.step-00001200.rescue`.
std::string rescue_name(std::int64_t step);

/// Returns the step of such a name; nothing if it is none.
std::optional<std::int64_t> step_of_aside(std::string_view name);

/// Returns whether a name is that of something unfinished: a folder of aside_name(), or a file that
/// was to become LATEST or best.
bool is_leftover(std::string_view name);

/// Returns whether a snapshot may have a file of this name: letters, digits, `.`, `_` and `-`, at
/// most 200, no dot in front, and not the manifest's.
bool is_file_name(std::string_view name);

}  // namespace lockstep
