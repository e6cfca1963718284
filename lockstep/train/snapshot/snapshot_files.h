#pragma once

#include <optional>
#include <string>

namespace lockstep {

/// Names a part of a group of tensors: `model.safetensors`, or of several parts, counted from 0,
/// `model-00001-of-00002.safetensors`.
std::string snapshot_file_name(const std::string& group, int part = 0, int parts = 1);

/// Names what only one rank knows: `rank-00003.safetensors`.
std::string snapshot_rank_file_name(int rank);

/// Is what snapshot_file_name() was given.
struct SnapshotPartName {
  std::string group;
  int part = 0;
  int parts = 1;
};

/// Takes a file's name apart; nothing if it is none of snapshot_file_name(). The file of a rank
/// comes out as a group of one part, by its name.
std::optional<SnapshotPartName> parse_snapshot_file_name(const std::string& name);

/// Says which part of the training a rank does.
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
