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

/// Names a part of a group of tensors: `model.safetensors`, or of several parts, counted from 0,
/// `model-00001-of-00002.safetensors`.
std::string snapshot_file_name(const std::string& group, int part = 0, int parts = 1);

/// Names what only one rank knows: `rank-00003.safetensors`.
std::string snapshot_rank_file_name(int rank);

/// The arguments of snapshot_file_name().
struct SnapshotPartName {
  std::string group;
  int part = 0;
  int parts = 1;
};

/// Takes a file's name apart; nothing if it is none of snapshot_file_name(). The file of a rank
/// comes out as a group of one part, by its name.
std::optional<SnapshotPartName> parse_snapshot_file_name(const std::string& name);

/// The part of the training that a rank does.
struct SnapshotRole {
  int rank = 0;                    ///< in the world
  int replica = 0;                 ///< whose part this is
  int stage = 0;                   ///< that this rank holds
  int stages = 1;                  ///< that are spread over ranks
  int ranks = 1;                   ///< of the world
  bool sharded_optimizer = false;  ///< every rank keeps a share of the optimizer's state
};

/// Names the files that one rank writes; an empty name is a file that others write.
struct SnapshotFileNames {
  std::string model;
  std::string model_ema;
  std::string optimizer;
  std::string rank;
};

/// Divides a snapshot among the ranks: replica 0 writes the model and the optimizer, the holder of
/// each stage its part; shares of an optimizer are written by all who have one.
SnapshotFileNames snapshot_file_names(const SnapshotRole& role);

}  // namespace lockstep
