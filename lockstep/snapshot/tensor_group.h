#pragma once

#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "lockstep/formats/weights/tensor_parts.h"
#include "lockstep/snapshot/manifest.h"

namespace lockstep {

/// The names of a snapshot's files of tensors, in order, by what they hold: `model`, `model-ema`,
/// `optimizer`, `rank-00000`.
using SnapshotGroups = std::map<std::string, std::vector<std::string>>;

/// Finds them in the manifest of a snapshot. A file that is missing, by the names of the others, is
/// a DataError.
SnapshotGroups groups_of(const SnapshotManifest& manifest, const std::filesystem::path& snapshot);

/// The tensors of one group, in files that are mapped into memory.
struct TensorGroup {
  std::vector<std::shared_ptr<const TensorFile>> files;  ///< JoinedTensor::Piece::file counts them
  std::vector<JoinedTensor> tensors;
};

/// Opens the files of a group. Throws DataError as join_parts() does.
TensorGroup open_group(
    const std::filesystem::path& snapshot, const std::vector<std::string>& files);

/// Writes all tensors of a group, whole, into one safetensors file, none of which is in memory as a
/// whole. A file that another program changes meanwhile is a DataError, and nothing is written.
void write_whole(const TensorGroup& group, const std::filesystem::path& file,
    const std::map<std::string, std::string>& metadata = {});

/// Checks that the parts of each tensor cover it, if a snapshot has some. Only the headers of files
/// are read. Throws DataError as join_parts() does.
void check_parts(const SnapshotManifest& manifest, const std::filesystem::path& snapshot);

}  // namespace lockstep
