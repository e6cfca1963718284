#include "lockstep/snapshot/snapshot_files.h"

#include <cstdio>
#include <fstream>
#include <iterator>
#include <map>
#include <nlohmann/json.hpp>
#include <string_view>
#include <utility>

#include <torch/version.h>

#include "lockstep/core/error.h"
#include "lockstep/core/text.h"

namespace lockstep {
namespace {

constexpr std::string_view kEnding = ".safetensors";
constexpr std::size_t kDigits = 5;
constexpr std::string_view kNumbers = "-00001-of-00002";

std::string five_digits(int number) {
  char text[16];
  std::snprintf(text, sizeof text, "%05d", number);
  return text;
}

std::optional<int> number_of(std::string_view digits) {
  const auto number = parse_number<std::uint64_t>(digits);  // digits only
  return number ? std::optional(static_cast<int>(*number)) : std::nullopt;
}

}  // namespace

std::string snapshot_file_name(const std::string& group, int part, int parts) {
  check(part >= 0 && part < parts, "snapshot_file_name: there is no part ", part, " of ", parts,
      " of ", group);
  if (parts == 1) return concat(group, kEnding);
  return concat(group, '-', five_digits(part + 1), "-of-", five_digits(parts), kEnding);
}

std::string snapshot_rank_file_name(int rank) {
  return concat("rank-", five_digits(rank), kEnding);
}

std::optional<SnapshotPartName> parse_snapshot_file_name(const std::string& name) {
  if (!name.ends_with(kEnding) || name.size() == kEnding.size()) return std::nullopt;
  const std::string_view stem(name.data(), name.size() - kEnding.size());
  if (stem.size() <= kNumbers.size()) return SnapshotPartName{std::string(stem), 0, 1};
  const std::string_view numbers = stem.substr(stem.size() - kNumbers.size());
  const auto part = number_of(numbers.substr(1, kDigits));
  const auto parts = number_of(numbers.substr(kNumbers.size() - kDigits));
  const bool is_part = numbers.front() == '-' && numbers.substr(1 + kDigits, 4) == "-of-" && part &&
                       parts && *part >= 1 && *part <= *parts && *parts > 1;
  if (!is_part) return SnapshotPartName{std::string(stem), 0, 1};
  return SnapshotPartName{
      std::string(stem.substr(0, stem.size() - kNumbers.size())), *part - 1, *parts};
}

SnapshotFileNames snapshot_file_names(const SnapshotRole& role) {
  SnapshotFileNames names{.model = {}, .model_ema = {}, .optimizer = {}, .rank = {}};
  names.rank = snapshot_rank_file_name(role.rank);
  if (role.replica == 0) {
    names.model = snapshot_file_name("model", role.stage, role.stages);
    names.model_ema = snapshot_file_name("model-ema", role.stage, role.stages);
    names.optimizer = snapshot_file_name("optimizer", role.stage, role.stages);
  }
  if (role.sharded_optimizer) {
    names.optimizer = snapshot_file_name("optimizer", role.rank, role.ranks);
  }
  return names;
}

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
    list.push_back({{"name", file.name}, {"bytes", file.bytes}, {"sha256", file.sha256},
        {"tensors", tensors}, {"tensor_bytes", tensor_bytes}});
  }
  return list.dump();
}

std::optional<std::vector<WrittenFile>> read_written_files(const std::filesystem::path& list) {
  std::ifstream stream(list, std::ios::binary);
  if (!stream) return std::nullopt;
  return parse_written_files({std::istreambuf_iterator<char>(stream), {}});
}

std::optional<std::vector<WrittenFile>> parse_written_files(const std::string& text) {
  const json entries = json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (entries.is_discarded()) return std::nullopt;  // its writer is in the middle of it
  std::vector<WrittenFile> files;
  for (const json& entry : entries) {
    SnapshotFile file{.name = entry.at("name").get<std::string>(),
        .bytes = entry.at("bytes").get<std::uint64_t>(),
        .sha256 = entry.at("sha256").get<std::string>()};
    files.push_back({.file = std::move(file),
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

void commit_files(PendingSnapshot& pending, std::vector<WrittenFile> files) {
  for (const IndexFile& index : index_files(files))
    files.push_back({.file = pending.write(index.name, index.text)});
  SnapshotManifest manifest{
      .step = pending.step(), .libtorch = TORCH_VERSION, .lockstep = {}, .files = {}};
  for (WrittenFile& written : files) manifest.files.push_back(std::move(written.file));
  pending.commit(std::move(manifest));
}

}  // namespace lockstep
