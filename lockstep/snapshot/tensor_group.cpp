#include "lockstep/snapshot/tensor_group.h"

#include <algorithm>

#include "lockstep/core/error.h"
#include "lockstep/formats/output_file.h"
#include "lockstep/formats/weights/safetensors.h"
#include "lockstep/snapshot/snapshot_names.h"

namespace lockstep {

// All parts of a group are there, and all are parts of the same whole.
SnapshotGroups groups_of(const SnapshotManifest& manifest, const std::filesystem::path& snapshot) {
  SnapshotGroups groups;
  std::map<std::string, int> wholes;  // the number of parts that each group has by its names
  for (const SnapshotFile& file : manifest.files) {
    const auto name = parse_snapshot_file_name(file.name);
    if (!name) continue;
    const int number = wholes.try_emplace(name->group, name->parts).first->second;
    if (number != name->parts)
      throw DataError(concat(snapshot.string(), ": ", name->group, " is there in ", number,
          " parts and in ", name->parts));
    groups[name->group].push_back(file.name);
  }
  for (auto& [group, files] : groups) {
    if (std::ssize(files) != wholes.at(group))
      throw DataError(concat(snapshot.string(), ": ", group, " has ", wholes.at(group),
          " parts, of which ", files.size(), " are there"));
    std::ranges::sort(files);
  }
  return groups;
}

TensorGroup open_group(
    const std::filesystem::path& snapshot, const std::vector<std::string>& files) {
  TensorGroup group;
  std::vector<NamedTensorFile> named;
  for (const std::string& file : files) {
    const std::filesystem::path path = snapshot / file;
    group.files.push_back(std::make_shared<const TensorFile>(read_safetensors(path)));
    named.push_back({.name = path.string(), .tensors = group.files.back().get()});
  }
  group.tensors = join_parts(named);
  return group;
}

void write_whole(const TensorGroup& group, const std::filesystem::path& file,
    const std::map<std::string, std::string>& metadata) {
  AtomicFile whole(file);
  write_safetensors(whole, group.tensors, metadata);
  for (const auto& opened : group.files) opened->require_unchanged();
  whole.commit();
}

void check_parts(const SnapshotManifest& manifest, const std::filesystem::path& snapshot) {
  if (!manifest.has_parts) return;
  for (const auto& [name, files] : groups_of(manifest, snapshot)) open_group(snapshot, files);
}

}  // namespace lockstep
