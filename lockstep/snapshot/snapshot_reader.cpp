#include "lockstep/snapshot/snapshot_reader.h"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>

#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>

#include "lockstep/core/error.h"
#include "lockstep/device/host_tensor.h"
#include "lockstep/formats/weights/safetensors.h"
#include "lockstep/nn/weights.h"
#include "lockstep/snapshot/group_values.h"
#include "lockstep/snapshot/manifest.h"
#include "lockstep/snapshot/snapshot_names.h"
#include "lockstep/snapshot/state_fields.h"

namespace lockstep {

NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(SnapshotRefusal, name, reason)

namespace {

using nlohmann::json;

using OpenedFile = std::shared_ptr<const TensorFile>;

torch::Tensor tensor_of(const TensorEntry& entry, const OpenedFile& file) {
  const auto type = *nn::scalar_type_of(entry.type);
  const auto address = reinterpret_cast<std::uintptr_t>(entry.bytes.data());
  if (!entry.bytes.empty() && address % bytes_of(entry.type) == 0) {
    // The mapping is read-only, which LibTorch cannot say.
    auto* const data = const_cast<std::uint8_t*>(entry.bytes.data());
    return at::from_blob(
        data, entry.shape, [file](void*) {}, torch::dtype(type));
  }
  torch::Tensor copy = at::empty(entry.shape, on_host(type));
  if (!entry.bytes.empty())
    std::memcpy(copy.mutable_data_ptr(), entry.bytes.data(), entry.bytes.size());
  return copy;
}

void add_tensors(const OpenedFile& file, const std::string& name, nn::NamedTensors& tensors) {
  for (const TensorEntry& entry : file->entries()) {
    if (tensors.contains(entry.name))
      throw DataError(concat(name, ": the tensor ", entry.name, " is in another part, too"));
    if (!nn::scalar_type_of(entry.type)) {
      throw DataError(concat(name, ": the tensor ", entry.name,
          " has a type that LibTorch lacks: ", torch_name(entry.type)));
    }
    tensors.insert(entry.name, tensor_of(entry, file));
  }
}

std::string group_of_rank(int rank) {
  return parse_snapshot_file_name(snapshot_rank_file_name(rank))->group;
}

SnapshotChoice chosen_by_root(
    const std::function<SnapshotChoice()>& choose, const ProcessGroup& world) {
  SnapshotChoice choice;
  do_on_root([&] { choice = choose(); }, world);
  const json own{{"path", choice.path.string()}, {"refused", choice.refused},
      {"manifest", choice.path.empty() ? "" : to_json(choice.manifest)}};
  // The command's paths are UTF-8; any other path comes back changed.
  const auto text = own.dump(-1, ' ', false, json::error_handler_t::replace);
  const json agreed = json::parse(broadcast_text(text, 0, world));
  choice = {.path = agreed.at("path").get<std::string>(), .manifest = {}, .refused = {}};
  agreed.at("refused").get_to(choice.refused);
  if (!choice.path.empty())
    choice.manifest = parse_manifest(agreed.at("manifest").get<std::string>(), choice.path);
  return choice;
}

}  // namespace

// All parts of a group are there, and all are parts of the same whole.
SnapshotReader::SnapshotReader(const SnapshotChoice& choice)
    : path_(choice.path), step_(choice.manifest.step) {
  check(!path_.empty(), "SnapshotReader: there is no snapshot to read");
  std::map<std::string, int> wholes;  // the number of parts that each group has by its names
  for (const SnapshotFile& file : choice.manifest.files) {
    const auto name = parse_snapshot_file_name(file.name);
    if (!name) continue;
    const int number = wholes.try_emplace(name->group, name->parts).first->second;
    if (number != name->parts)
      throw DataError(concat(path_.string(), ": ", name->group, " is there in ", number,
          " parts and in ", name->parts));
    parts_[name->group].push_back(file.name);
  }
  for (auto& [group, parts] : parts_) {
    if (std::ssize(parts) != wholes.at(group))
      throw DataError(concat(path_.string(), ": ", group, " has ", wholes.at(group),
          " parts, of which ", parts.size(), " are there"));
    std::ranges::sort(parts);
  }
}

std::vector<std::string> SnapshotReader::parts_of(const std::string& group) const {
  const auto found = parts_.find(group);
  return found == parts_.end() ? std::vector<std::string>() : found->second;
}

std::string SnapshotReader::state() const {
  return short_text(OpenDirectory::open(path_), kStateFile, kStateLimits.bytes);
}

nn::NamedTensors SnapshotReader::group(const std::string& name) const {
  nn::NamedTensors tensors("Tensor");
  for (const std::string& part : parts_of(name)) {
    const auto file = path_ / part;
    add_tensors(open(file), file.string(), tensors);
  }
  return tensors;
}

OptimizerState SnapshotReader::optimizer() const {
  std::vector<OptimizerState> states;
  for (const std::string& part : parts_of("optimizer")) {
    const auto path = path_ / part;
    const OpenedFile file = open(path);
    const auto options = file->metadata().find(kOptimizerOptions);
    if (options == file->metadata().end())
      throw DataError(concat(path.string(), ": the options of the optimizer are missing"));
    OptimizerState state;
    state.options = options->second;
    add_tensors(file, path.string(), state.tensors);
    states.push_back(std::move(state));
  }
  if (states.empty()) throw DataError(path_.string() + ": no optimizer state");
  return joined(states);
}

nn::NamedTensors SnapshotReader::rank(int rank) const { return group(group_of_rank(rank)); }

OpenedFile SnapshotReader::open(const std::filesystem::path& part) const {
  return opened_.emplace_back(std::make_shared<const TensorFile>(read_safetensors(part)));
}

void SnapshotReader::require_unchanged() const {
  const auto files = std::exchange(opened_, {});
  for (const OpenedFile& file : files) file->require_unchanged();
}

void SnapshotReader::checked(const std::function<void()>& restore) const {
  try {
    restore();
  } catch (const std::exception&) {
    require_unchanged();
    throw;
  }
  require_unchanged();
}

int SnapshotReader::ranks() const {
  int ranks = 0;
  while (parts_.contains(group_of_rank(ranks))) ++ranks;
  return ranks;
}

SnapshotChoice newest_snapshot(const std::filesystem::path& run, const ProcessGroup& world) {
  return chosen_by_root([&] { return SnapshotFolder(run).newest(); }, world);
}

SnapshotChoice verified_snapshot(const std::filesystem::path& snapshot, const ProcessGroup& world) {
  const auto verify = [&] {
    return SnapshotChoice{.path = snapshot, .manifest = verify_snapshot(snapshot), .refused = {}};
  };
  return chosen_by_root(verify, world);
}

}  // namespace lockstep
