#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "lockstep/formats/weights/tensor_file.h"
#include "lockstep/snapshot/manifest.h"
#include "lockstep/snapshot/pending_snapshot.h"

namespace lockstep {

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

/// A file of a snapshot that one rank has written, as it reports it to rank 0.
struct WrittenFile {
  SnapshotFile file;
  std::vector<std::string> tensors = {};  ///< names; only of one part of several of a model
  std::uint64_t tensor_bytes = 0;

  bool operator==(const WrittenFile&) const = default;
};

/// Describes what was written; with names of tensors where an index will need them.
WrittenFile written_file(SnapshotFile file, std::span<const TensorEntry> entries);

/// Writes the list of what one rank wrote, for rank 0.
std::string to_json(std::span<const WrittenFile> files);

/// Understands such a list; nothing if it is not whole.
std::optional<std::vector<WrittenFile>> parse_written_files(const std::string& text);

/// Reads such a list; nothing if the file is not there or not whole yet.
std::optional<std::vector<WrittenFile>> read_written_files(const std::filesystem::path& list);

/// A further file that whoever commits writes.
struct IndexFile {
  std::string name;
  std::string text;
};

/// Makes Hugging Face's index of each model that is in several parts: which tensor is in which
/// file.
std::vector<IndexFile> index_files(std::span<const WrittenFile> files);

/// Makes a snapshot of these files appear, with the index files that they need.
void commit_files(PendingSnapshot& pending, std::vector<WrittenFile> files);

}  // namespace lockstep
