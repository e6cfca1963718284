#include "lockstep/parallel/ddp/replicated_state.h"

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <fnmatch.h>
#include <map>
#include <tuple>

#include <ATen/MemoryOverlap.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <torch/nn/modules/embedding.h>

#include "lockstep/core/error.h"
#include "lockstep/core/text.h"
#include "lockstep/device/copy_values.h"
#include "lockstep/device/host_tensor.h"

namespace lockstep {
namespace {

std::string describe_all(const NamedTensors& tensors) {
  std::string text;
  for (const auto& [name, tensor] : tensors) {
    text += concat(name, " ", c10::toString(tensor.scalar_type()), " ", tensor.sizes(), "\n");
  }
  return text;
}

// Texts differ in length: the lengths go first, then all padded to the longest.
std::vector<std::string> gather_texts(const std::string& text, const ProcessGroup& group) {
  const auto gather = [&](const torch::Tensor& own) {
    const torch::Tensor all = torch::empty({group.size(), own.numel()}, on_host(own.scalar_type()));
    group.all_gather(all, own).wait();
    return all;
  };
  const torch::Tensor lengths =
      gather(torch::tensor({static_cast<std::int64_t>(text.size())}, torch::kLong)).flatten();
  const torch::Tensor own =
      torch::zeros({lengths.max().item<std::int64_t>()}, on_host(torch::kByte));
  std::copy(text.begin(), text.end(), own.data_ptr<std::uint8_t>());
  const torch::Tensor all = gather(own);
  std::vector<std::string> texts;
  for (int rank = 0; rank < group.size(); ++rank) {
    const auto* first = all[rank].data_ptr<std::uint8_t>();
    texts.emplace_back(first, first + lengths[rank].item<std::int64_t>());
  }
  return texts;
}

std::vector<std::string> lines_of(const std::string& text) {
  auto lines = split(text, '\n');
  lines.pop_back();  // each line ends with a newline
  return lines;
}

std::string line_at(const std::vector<std::string>& lines, std::size_t index) {
  return index < lines.size() ? lines[index] : "nothing";
}

std::string first_difference(const std::string& own, const std::string& other) {
  const auto a = lines_of(own), b = lines_of(other);
  for (std::size_t index = 0; index < std::max(a.size(), b.size()); ++index) {
    if (line_at(a, index) != line_at(b, index)) {
      return concat("number ", index, " is ", line_at(a, index), " on rank 0 (", a.size(),
          " in all) and ", line_at(b, index));
    }
  }
  return "";
}

// Many and small, and copied in each step: LibTorch's operators would take longer than the copies.
bool are_bytes_in_order(const torch::Tensor& tensor) {
  return is_plain(tensor) && tensor.is_contiguous();
}

template <typename Copy>
void each_piece(
    const std::vector<torch::Tensor>& tensors, const torch::Tensor& flat, const Copy& copy) {
  auto* piece = static_cast<std::byte*>(flat.mutable_data_ptr());
  for (const torch::Tensor& tensor : tensors) {
    if (tensor.numel() > 0) copy(tensor, piece, tensor.nbytes());
    piece += tensor.nbytes();
  }
}

void broadcast_plain(
    const std::vector<torch::Tensor>& tensors, int root, const ProcessGroup& group) {
  std::int64_t elements = 0;
  for (const torch::Tensor& tensor : tensors) elements += tensor.numel();
  const torch::Tensor flat = torch::empty({elements}, on_host(tensors.front().scalar_type()));
  if (group.rank() == root) {
    each_piece(tensors, flat, [](const auto& tensor, std::byte* piece, std::size_t bytes) {
      std::memcpy(piece, tensor.const_data_ptr(), bytes);
    });
  }
  group.broadcast(flat, root).wait();
  if (group.rank() == root) return;
  // As an operator in place would: a graph may have saved it.
  constexpr auto kVersions = c10::DispatchKey::ADInplaceOrView;
  const bool are_new = !c10::impl::tls_is_dispatch_key_excluded(kVersions);
  each_piece(tensors, flat, [&](const auto& tensor, const std::byte* piece, std::size_t bytes) {
    std::memcpy(tensor.mutable_data_ptr(), piece, bytes);
    if (are_new) tensor.unsafeGetTensorImpl()->bump_version();
  });
}

void broadcast_flat(
    const std::vector<torch::Tensor>& tensors, int root, const ProcessGroup& group) {
  if (std::ranges::all_of(tensors, are_bytes_in_order))
    return broadcast_plain(tensors, root, group);
  std::vector<torch::Tensor> pieces;
  for (const torch::Tensor& tensor : tensors) pieces.push_back(tensor.detach().reshape({-1}));
  const torch::Tensor flat = torch::cat(pieces);
  group.broadcast(flat, root).wait();
  if (group.rank() == root) return;
  std::int64_t at = 0;
  for (const torch::Tensor& tensor : tensors) {
    tensor.detach().copy_(flat.narrow(0, at, tensor.numel()).view(tensor.sizes()));
    at += tensor.numel();
  }
}

bool has_sparse_gradient(const torch::nn::Module& module) {
  if (const auto* table = dynamic_cast<const torch::nn::EmbeddingImpl*>(&module))
    return table->options.sparse();
  if (const auto* bag = dynamic_cast<const torch::nn::EmbeddingBagImpl*>(&module))
    return bag->options.sparse();
  return false;
}

}  // namespace

void check_same_on_all_ranks(
    const std::string& what, const NamedTensors& tensors, const ProcessGroup& group) {
  if (group.size() == 1) return;
  const auto texts = gather_texts(describe_all(tensors), group);
  for (int rank = 1; rank < group.size(); ++rank) {
    const std::string difference =
        first_difference(texts[0], texts[static_cast<std::size_t>(rank)]);
    check(difference.empty(), what, " differ between the ranks: ", difference, " on rank ", rank,
        " (", lines_of(texts[static_cast<std::size_t>(rank)]).size(),
        " in all); build the same model on every rank");
  }
  for (const auto& [name, tensor] : tensors) {
    check(!tensor.is_complex(), what, ": ", name, " is of ", tensor.scalar_type(),
        ", which ranks cannot add up; keep torch::view_as_real() of it");
    check(at::has_internal_overlap(tensor) != at::MemOverlap::Yes, what, ": ", name,
        " has elements that lie in the same memory, as after expand(), and cannot be given the "
        "values of rank 0; keep a clone() of it");
  }
}

void broadcast_all(const std::vector<torch::Tensor>& tensors, int root, const ProcessGroup& group) {
  if (group.size() == 1) return;
  const torch::NoGradGuard no_grad;
  using Kind = std::tuple<at::ScalarType, at::DeviceType, at::DeviceIndex>;
  std::map<Kind, std::vector<torch::Tensor>> by_kind;
  for (const torch::Tensor& tensor : tensors)
    by_kind[{tensor.scalar_type(), tensor.device().type(), tensor.device().index()}].push_back(
        tensor);
  for (const auto& entry : by_kind) broadcast_flat(entry.second, root, group);
}

void ReplicatedState::add(const torch::nn::Module& module, const std::string& prefix) {
  for (const auto& entry : module.named_parameters())
    parameters.emplace_back(prefix + entry.key(), entry.value());
  for (const auto& entry : module.named_buffers())
    buffers.emplace_back(prefix + entry.key(), entry.value());
  const auto note_embedding = [&](const std::string& path, const torch::nn::Module& part) {
    if (has_sparse_gradient(part))
      sparse.insert(prefix + (path.empty() ? "" : path + ".") + "weight");
  };
  module.apply(note_embedding);
}

ReplicatedState ReplicatedState::without(const std::vector<std::string>& patterns) const {
  ReplicatedState kept = *this;
  for (const std::string& pattern : patterns) {
    const auto fits = [&](const auto& entry) {
      return ::fnmatch(pattern.c_str(), entry.first.c_str(), 0) == 0;
    };
    check(std::ranges::any_of(parameters, fits) || std::ranges::any_of(buffers, fits),
        "DistributedDataParallel: to be ignored is ", pattern,
        ", but no parameter or buffer has such a name");
    std::erase_if(kept.parameters, fits);
    std::erase_if(kept.buffers, fits);
  }
  return kept;
}

StateRecord::StateRecord(const ReplicatedState& state) {
  add(state.parameters, true);
  add(state.buffers, false);
}

void StateRecord::add(const NamedTensors& tensors, bool are_parameters) {
  for (const auto& [name, tensor] : tensors) {
    entries_.push_back({name, tensor, are_parameters, tensor.scalar_type(), tensor.device(),
        tensor.sizes().vec(), tensor.requires_grad()});
  }
}

bool StateRecord::has(const std::string& name) const {
  return std::any_of(
      entries_.begin(), entries_.end(), [&](const Entry& entry) { return entry.name == name; });
}

std::string StateRecord::change(const ReplicatedState& now) const {
  const std::size_t count = now.parameters.size() + now.buffers.size();
  for (std::size_t index = 0; index < std::max(count, entries_.size()); ++index) {
    if (index >= count) return entries_[index].name + " was removed";
    const auto& tensor = index < now.parameters.size() ? now.parameters[index]
                                                       : now.buffers[index - now.parameters.size()];
    if (index >= entries_.size()) return tensor.first + " was added";
    std::string found = change(entries_[index], tensor);
    if (!found.empty()) return found;
  }
  return "";
}

std::string StateRecord::change(
    const Entry& then, const std::pair<std::string, torch::Tensor>& now) const {
  const auto& [name, tensor] = now;
  if (name != then.name) return has(name) ? then.name + " was removed" : name + " was added";
  if (!tensor.is_same(then.tensor)) return name + " was replaced by another tensor";
  if (!then.is_parameter) return "";
  if (tensor.requires_grad() && !then.required_grad)
    return name + " requires a gradient and did not";
  if (tensor.scalar_type() == then.type && tensor.device() == then.device &&
      tensor.sizes() == then.sizes)
    return "";
  return concat(name, " was ", c10::toString(then.type), " ", at::IntArrayRef(then.sizes), " on ",
      then.device, " and is ", c10::toString(tensor.scalar_type()), " ", tensor.sizes(), " on ",
      tensor.device());
}

}  // namespace lockstep
