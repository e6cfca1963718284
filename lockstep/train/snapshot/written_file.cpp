#include "lockstep/train/snapshot/written_file.h"

#include <fstream>
#include <iterator>
#include <map>
#include <utility>

#include <nlohmann/json.hpp>

#include "lockstep/train/snapshot/snapshot_files.h"

namespace lockstep {
namespace {

using nlohmann::json;

// Python's libraries look for an index of weights only.
bool needs_index(const std::string& file) {
  const auto name = parse_snapshot_file_name(file);
  return name && name->parts > 1 && name->group.starts_with("model");
}

}  // namespace

WrittenFile written_file(SnapshotFile file, std::span<const TensorEntry> entries) {
  WrittenFile written{.file = std::move(file)};
  if (!needs_index(written.file.name)) return written;
  for (const TensorEntry& entry : entries) {
    written.tensors.push_back(entry.name);
    written.tensor_bytes += entry.bytes.size();
  }
  return written;
}

std::string to_json(std::span<const WrittenFile> files) {
  json list = json::array();
  for (const auto& [file, tensors, tensor_bytes] : files) {
    list.push_back(
        {{"name", file.name},
         {"bytes", file.bytes},
         {"sha256", file.sha256},
         {"tensors", tensors},
         {"tensor_bytes", tensor_bytes}});
  }
  return list.dump();
}

std::optional<std::vector<WrittenFile>> read_written_files(const std::filesystem::path& list) {
  std::ifstream stream(list, std::ios::binary);
  if (!stream) return std::nullopt;
  const std::string text{std::istreambuf_iterator<char>(stream), {}};
  const json entries = json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (entries.is_discarded()) return std::nullopt;  // its writer is in the middle of it
  std::vector<WrittenFile> files;
  for (const json& entry : entries) {
    SnapshotFile file{
        .name = entry.at("name").get<std::string>(),
        .bytes = entry.at("bytes").get<std::uint64_t>(),
        .sha256 = entry.at("sha256").get<std::string>()};
    files.push_back(
        {.file = std::move(file),
         .tensors = entry.at("tensors").get<std::vector<std::string>>(),
         .tensor_bytes = entry.at("tensor_bytes").get<std::uint64_t>()});
  }
  return files;
}

std::vector<IndexFile> index_files(std::span<const WrittenFile> files) {
  struct Index {
    std::uint64_t bytes = 0;
    json places = json::object();
  };
  std::map<std::string, Index> groups;
  for (const WrittenFile& written : files) {
    if (!needs_index(written.file.name)) continue;
    Index& index = groups[parse_snapshot_file_name(written.file.name)->group];
    index.bytes += written.tensor_bytes;
    for (const std::string& name : written.tensors) index.places[name] = written.file.name;
  }
  std::vector<IndexFile> made;
  for (auto& [group, index] : groups) {
    const json text{{"metadata", {{"total_size", index.bytes}}}, {"weight_map", index.places}};
    made.push_back({group + ".safetensors.index.json", text.dump(2) + "\n"});
  }
  return made;
}

}  // namespace lockstep
