#pragma once

#include <cstdint>
#include <exception>
#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "lockstep/comm/process_group.h"
#include "lockstep/formats/byte_stream.h"
#include "lockstep/formats/weights/tensor_file.h"
#include "lockstep/snapshot/manifest.h"
#include "lockstep/snapshot/pending_snapshot.h"

namespace lockstep {

/// A file of a snapshot that one rank has written, as it reports it to those that commit.
struct WrittenFile {
  SnapshotFile file;
  std::vector<std::string> tensors = {};  ///< names; only of one part of several of a model
  std::uint64_t tensor_bytes = 0;
  bool has_parts = false;  ///< of tensors

  bool operator==(const WrittenFile&) const = default;
};

/// A file of a snapshot that one rank has and nobody has written yet.
struct OwnFile {
  WrittenFile facts;  ///< its name, and what an index needs; size and hash are found on the way
  std::function<void(ByteSink&)> write;
};

/// Makes a safetensors file of tensors, whose bytes must live until it is written.
OwnFile own_file(const std::string& name, std::vector<TensorEntry> entries,
    std::map<std::string, std::string> metadata);

/// Writes a file into a snapshot of this rank's host.
WrittenFile write_own(const OwnFile& own, PendingSnapshot& pending);

/// Writes the list of what one rank has or wrote, for the others.
std::string to_json(const std::vector<WrittenFile>& files);

/// Reads such a list; nothing if it is not whole.
std::optional<std::vector<WrittenFile>> parse_written_files(const std::string& text);

/// Reads one from a file; nothing if that is not there or not whole yet.
std::optional<std::vector<WrittenFile>> read_written_files(const std::filesystem::path& list);

/// Makes Hugging Face's index of each model whose tensors are whole in several files, by its name:
/// which tensor is in which file.
std::map<std::string, std::string> index_files(std::span<const WrittenFile> files);

/// Makes a snapshot of these files appear, with the index files that they need.
void commit_files(PendingSnapshot& pending, std::vector<WrittenFile> files);

/// Gives the files of all ranks to those of `receivers`, each of which has begun a snapshot. One of
/// these gets the facts of all files, in the order of their ranks; the others get an empty list.
///
/// If anything fails on any rank, `failure` before this call included, this throws it there, and
/// returns nothing on the others: either all receivers have all files, or nobody may commit. A
/// collective, in which no rank waits for one that has failed, unless its process is gone.
std::optional<std::vector<WrittenFile>> spread_files(const ProcessGroup& group,
    const std::vector<int>& receivers, PendingSnapshot* pending, const std::vector<OwnFile>& own,
    std::exception_ptr failure = nullptr);

}  // namespace lockstep
