#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "lockstep/formats/snapshot/manifest.h"
#include "lockstep/formats/weights/tensor_file.h"

namespace lockstep {

/// Is a file of a snapshot that one rank has written, as it tells rank 0.
struct WrittenFile {
  SnapshotFile file;
  std::vector<std::string> tensors = {};  ///< names; only of one part of several of a model
  std::uint64_t tensor_bytes = 0;

  bool operator==(const WrittenFile&) const = default;
};

/// Says what was written; with names of tensors where an index will need them.
WrittenFile written_file(SnapshotFile file, std::span<const TensorEntry> entries);

/// Writes the list of what one rank wrote, for rank 0.
std::string to_json(std::span<const WrittenFile> files);

/// Reads such a list; nothing if the file is not there or not whole yet.
std::optional<std::vector<WrittenFile>> read_written_files(const std::filesystem::path& list);

/// Is a further file that rank 0 writes.
struct IndexFile {
  std::string name;
  std::string text;
};

/// Makes Hugging Face's index of each model that is in several parts: which tensor is in which
/// file.
std::vector<IndexFile> index_files(std::span<const WrittenFile> files);

}  // namespace lockstep
