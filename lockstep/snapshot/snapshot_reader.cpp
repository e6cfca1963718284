#include "lockstep/snapshot/snapshot_reader.h"

#include <cstdint>
#include <functional>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <string>
#include <utility>

#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>

#include "lockstep/core/error.h"
#include "lockstep/device/host_tensor.h"
#include "lockstep/nn/weights.h"
#include "lockstep/snapshot/group_values.h"
#include "lockstep/snapshot/manifest.h"
#include "lockstep/snapshot/snapshot_names.h"
#include "lockstep/snapshot/state_fields.h"
#include "lockstep/snapshot/tensor_shards.h"

namespace lockstep {

NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(SnapshotRefusal, name, reason)

namespace {

using nlohmann::json;

using OpenedFile = std::shared_ptr<const TensorFile>;

// The mapping is read-only, which LibTorch cannot say.
torch::Tensor mapped(std::span<const std::uint8_t> bytes, torch::IntArrayRef shape,
    torch::ScalarType type, const OpenedFile& file) {
  auto* const data = const_cast<std::uint8_t*>(bytes.data());
  return at::from_blob(
      data, shape, [file](void*) {}, torch::dtype(type));
}

/// Returns the bytes of these elements where they lie; nothing unless that is in one piece, at an
/// address at which a tensor may begin.
std::optional<std::pair<std::span<const std::uint8_t>, std::size_t>> bytes_in_place(
    const JoinedTensor& tensor, std::int64_t begin, std::int64_t end) {
  const auto width = static_cast<std::int64_t>(bytes_of(tensor.type));
  for (const JoinedTensor::Piece& piece : tensor.pieces) {
    const std::int64_t first = (begin - piece.begin) * width, last = (end - piece.begin) * width;
    if (first < 0 || last > std::ssize(piece.bytes) || first == last) continue;
    const auto bytes = piece.bytes.subspan(
        static_cast<std::size_t>(first), static_cast<std::size_t>(last - first));
    if (reinterpret_cast<std::uintptr_t>(bytes.data()) % bytes_of(tensor.type) != 0) break;
    return std::pair(bytes, piece.file);
  }
  return std::nullopt;
}

/// Returns these elements in the order in which the tensor counts them.
torch::Tensor elements_of(const JoinedTensor& tensor, std::int64_t begin, std::int64_t end,
    torch::IntArrayRef shape, const TensorGroup& group) {
  const auto type = nn::scalar_type_of(tensor.type);
  if (!type)
    throw DataError(
        concat(tensor.name, ": has a type that LibTorch lacks: ", torch_name(tensor.type)));
  if (const auto found = bytes_in_place(tensor, begin, end))
    return mapped(found->first, shape, *type, group.files[found->second]);
  torch::Tensor copy = at::empty(shape, on_host(*type));
  tensor.copy(begin, {static_cast<std::uint8_t*>(copy.mutable_data_ptr()), copy.nbytes()});
  return copy;
}

torch::Tensor whole_of(const JoinedTensor& tensor, const TensorGroup& group) {
  const std::int64_t elements = TensorRange{.whole = tensor.shape}.elements();
  if (tensor.order.empty()) return elements_of(tensor, 0, elements, tensor.shape, group);
  return elements_of(tensor, 0, elements, {elements}, group)
      .as_strided(tensor.shape, strides_of(tensor.shape, tensor.order));
}

// Ranks that count in another order need all of a tensor for a part of it.
torch::Tensor range_in(
    const JoinedTensor& tensor, const TensorRange& range, const TensorGroup& group) {
  if (range.whole != tensor.shape)
    throw DataError(concat(tensor.name, ": a tensor of shape ", shape_text(tensor.shape),
        " was saved, a part of one of shape ", shape_text(range.whole), " is needed"));
  if (range.order == tensor.order)
    return elements_of(tensor, range.begin, range.end, range.sizes(), group);
  const torch::Tensor whole = whole_of(tensor, group);
  return (range.order.empty() ? whole : whole.permute(range.order))
      .reshape({-1})
      .slice(0, range.begin, range.end)
      .view(range.sizes());
}

/// Returns what is wanted of a tensor; undefined if it is nothing.
torch::Tensor wanted_of(
    const JoinedTensor& tensor, const WantedTensors& wanted, const TensorGroup& group) {
  const std::string& name = tensor.name;
  if (wanted.names && !wanted.names->contains(name) &&
      !wanted.names->contains(name.substr(0, name.rfind('/'))))
    return {};
  const TensorRange* const range = range_of(name, wanted.ranges);
  if (range != nullptr && range->size() == 0) return {};
  return range == nullptr || counts_steps(name) ? whole_of(tensor, group)
                                                : range_in(tensor, *range, group);
}

nn::NamedTensors wanted_tensors(
    const TensorGroup& group, const WantedTensors& wanted, const std::filesystem::path& snapshot) {
  nn::NamedTensors tensors("Tensor");
  try {
    for (const JoinedTensor& tensor : group.tensors) {
      const torch::Tensor value = wanted_of(tensor, wanted, group);
      if (value.defined()) tensors.insert(tensor.name, value);
    }
  } catch (const DataError& error) {
    throw DataError(concat(snapshot.string(), ": ", error.what()));
  }
  return tensors;
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

SnapshotReader::SnapshotReader(const SnapshotChoice& choice)
    : path_(choice.path), step_(choice.manifest.step) {
  check(!path_.empty(), "SnapshotReader: there is no snapshot to read");
  groups_ = groups_of(choice.manifest, path_);
}

std::string SnapshotReader::state() const {
  return short_text(OpenDirectory::open(path_), kStateFile, kStateLimits.bytes);
}

TensorGroup SnapshotReader::open(const std::string& group) const {
  const auto files = groups_.find(group);
  if (files == groups_.end()) return {};
  TensorGroup opened = open_group(path_, files->second);
  opened_.insert(opened_.end(), opened.files.begin(), opened.files.end());
  return opened;
}

nn::NamedTensors SnapshotReader::group(const std::string& name, const WantedTensors& wanted) const {
  return wanted_tensors(open(name), wanted, path_);
}

OptimizerState SnapshotReader::optimizer(const WantedTensors& wanted) const {
  const TensorGroup group = open("optimizer");
  std::vector<OptimizerState> states;
  for (const OpenedFile& file : group.files) {
    const auto options = file->metadata().find(kOptimizerOptions);
    if (options == file->metadata().end())
      throw DataError(path_.string() + ": the options of the optimizer are missing");
    states.push_back({.options = options->second});
  }
  if (states.empty()) throw DataError(path_.string() + ": no optimizer state");
  OptimizerState state = joined(states);
  state.tensors = wanted_tensors(group, wanted, path_);
  return state;
}

nn::NamedTensors SnapshotReader::rank(int rank) const { return group(group_of_rank(rank)); }

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
  while (groups_.contains(group_of_rank(ranks))) ++ranks;
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
