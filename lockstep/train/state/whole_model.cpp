#include "lockstep/train/state/whole_model.h"

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <exception>
#include <optional>
#include <span>
#include <utility>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>

#include "lockstep/core/error.h"
#include "lockstep/core/text.h"
#include "lockstep/device/host_tensor.h"
#include "lockstep/formats/output_file.h"
#include "lockstep/formats/weights/safetensors.h"
#include "lockstep/formats/weights/weight_file.h"
#include "lockstep/nn/weights.h"
#include "lockstep/parallel/ddp/replicated_state.h"
#include "lockstep/parallel/pipeline/links.h"
#include "lockstep/snapshot/group_values.h"

namespace lockstep {

namespace {

// FNV-1a over words, with a fold: multiplication alone carries a change only upwards. Each round is
// one-to-one in the hash and in the word, so a single changed word always changes the result.
std::uint64_t mixed(std::uint64_t hash, std::uint64_t word) {
  hash = (hash ^ word) * 0x100000001b3u;
  return hash ^ (hash >> 32);
}

std::uint64_t hash_bytes(std::uint64_t hash, const char* bytes, std::size_t size) {
  std::size_t at = 0;
  for (; at + 8 <= size; at += 8) {
    std::uint64_t word = 0;
    std::memcpy(&word, bytes + at, 8);
    hash = mixed(hash, word);
  }
  std::uint64_t rest = 0;
  if (at < size) std::memcpy(&rest, bytes + at, size - at);
  return mixed(mixed(hash, rest), size);
}

torch::Tensor as_row(const torch::Tensor& tensor) {
  return tensor.as_strided({tensor.numel()}, {1});
}

// Names end in a zero byte each: none can hold one.
std::string text_of_names(const nn::NamedTensors& state) {
  std::string text;
  for (const auto& item : state) text += item.key() + '\0';
  return text;
}

std::vector<std::string> names_in(const std::string& text) {
  std::vector<std::string> names = split(text, '\0');
  names.pop_back();  // what follows the last zero byte
  return names;
}

void receive_state(nn::NamedTensors& state, const std::vector<std::string>& names,
    const std::string& description, int from, const ProcessGroup& group) {
  std::vector<std::int64_t> numbers(description.size() / sizeof(std::int64_t));
  std::memcpy(numbers.data(), description.data(), description.size());
  const Payload payload = read_description(numbers, torch::kCPU).second;
  if (names.size() != payload.values.size())
    throw CommError(concat("train: rank ", from, " names other tensors than it sends"));
  for (std::size_t index = 0; index < names.size(); ++index) {
    const torch::Tensor& value = payload.values[index];
    if (value.numel() > 0) group.recv(as_row(value), from).wait();
    state.insert(names[index], value);
  }
}

// Each rank continues what the one before it began.
std::uint64_t hash_of_stages(
    const std::vector<torch::Tensor>& parameters, const ProcessGroup& stages) {
  const torch::Tensor running = at::empty({1}, on_host(torch::kLong));
  auto* const hash = running.mutable_data_ptr<std::int64_t>();
  *hash = static_cast<std::int64_t>(kHashOfNothing);
  for (int rank = 0; rank < stages.size(); ++rank) {
    if (rank == stages.rank())
      *hash =
          static_cast<std::int64_t>(parameters_hash(parameters, static_cast<std::uint64_t>(*hash)));
    stages.broadcast(running, rank).wait();
  }
  return static_cast<std::uint64_t>(*hash);
}

}  // namespace

std::string hexadecimal(std::uint64_t hash) {
  char text[20];
  std::snprintf(text, sizeof text, "%016llx", static_cast<unsigned long long>(hash));
  return text;
}

std::uint64_t parameters_hash(const std::vector<torch::Tensor>& parameters, std::uint64_t start) {
  std::uint64_t hash = start;
  for (const auto& parameter : parameters) {
    const torch::Tensor plain = parameter.detach().cpu().contiguous();
    hash = hash_bytes(hash, static_cast<const char*>(plain.const_data_ptr()), plain.nbytes());
  }
  return hash;
}

std::string agreed_parameters_hash(const std::vector<torch::Tensor>& parameters,
    const ProcessGroup& world, const ProcessGroup& stages) {
  const torch::Tensor own = at::empty({1}, on_host(torch::kLong));
  own.fill_(static_cast<std::int64_t>(hash_of_stages(parameters, stages)));
  const torch::Tensor all = at::empty({world.size()}, on_host(torch::kLong));
  world.all_gather(all, own).wait();
  const auto* hashes = reinterpret_cast<const std::uint64_t*>(all.const_data_ptr<std::int64_t>());
  for (int rank = 1; rank < world.size(); ++rank) {
    if (hashes[rank] == hashes[0]) continue;
    throw Error(concat("train: the parameters of the ranks differ: hash ", hexadecimal(hashes[0]),
        " on rank 0, ", hexadecimal(hashes[rank]), " on rank ", rank,
        "; the results of this run cannot be trusted"));
  }
  return hexadecimal(hashes[0]);
}

nn::NamedTensors gathered_state(const nn::NamedTensors& own, const ProcessGroup& stages) {
  nn::NamedTensors all("Tensor");
  Payload payload{ValueForm::kTensor, {}, 0};
  for (const auto& item : own) {
    const torch::Tensor value = item.value().detach().cpu();
    if (stages.rank() == 0) all.insert(item.key(), value);
    payload.values.push_back(value.contiguous(value.suggest_memory_format()));
  }
  const std::vector<std::int64_t> numbers = describe({}, payload);
  const std::string description(
      reinterpret_cast<const char*>(numbers.data()), numbers.size() * sizeof(std::int64_t));
  const std::vector<std::string> names = gather_texts(text_of_names(own), 0, stages);
  const std::vector<std::string> descriptions = gather_texts(description, 0, stages);
  if (stages.rank() != 0) {
    for (const torch::Tensor& value : payload.values)
      if (value.numel() > 0) stages.send(as_row(value), 0).wait();
    return all;
  }
  for (int rank = 1; rank < stages.size(); ++rank) {
    const auto place = static_cast<std::size_t>(rank);
    receive_state(all, names_in(names[place]), descriptions[place], rank, stages);
  }
  return all;
}

void scatter_state(const nn::NamedTensors& all, const nn::NamedTensors& own,
    const ProcessGroup& stages, const ProcessGroup& replicas) {
  const at::NoGradGuard no_gradients;
  std::vector<torch::Tensor> values;
  for (const auto& item : own) values.push_back(item.value());
  if (replicas.rank() == 0) {
    const std::vector<std::string> names = gather_texts(text_of_names(own), 0, stages);
    for (const auto& item : own) {
      const torch::Tensor value = item.value().detach();
      if (stages.rank() == 0) value.copy_(all[item.key()]);
      if (stages.rank() == 0 || value.numel() == 0) continue;
      const torch::Tensor received = at::empty(value.sizes(), on_host(value.scalar_type()));
      stages.recv(received, 0).wait();
      value.copy_(received);
    }
    for (int rank = 1; stages.rank() == 0 && rank < stages.size(); ++rank)
      for (const std::string& name : names_in(names[static_cast<std::size_t>(rank)])) {
        const torch::Tensor value = all[name].detach().cpu().contiguous();
        if (value.numel() > 0) stages.send(value, rank).wait();
      }
  }
  broadcast_all(values, 0, replicas);
}

namespace {

struct NoSink final : ByteSink {
 private:
  void put(std::span<const std::uint8_t> /*bytes*/) override {}
};

/// The weights of a model that ranks share: whole ones by their names, and what each rank holds.
class SharedWeights {
 public:
  /// A collective.
  SharedWeights(
      const nn::NamedTensors& state, const TensorRanges& ranges, const ProcessGroup& group)
      : state_(state), group_(group) {
    exchange(ranges);
    for (const auto& item : state)
      if (!held_.contains(item.key()))
        entries_.push_back({.name = item.key(),
            .type = nn::element_type_of(item.value().scalar_type()).value(),
            .shape = item.value().sizes().vec(),
            .bytes = {}});
  }

  /// Returns names, types and whole shapes, the same on all ranks.
  const std::vector<TensorEntry>& entries() const { return entries_; }

  /// Brings a tensor together on the first rank, row-major; undefined elsewhere. A collective.
  torch::Tensor whole(const TensorEntry& entry) const {
    const torch::Tensor* const own = state_.find(entry.name);
    const auto shared = held_.find(entry.name);
    if (shared == held_.end()) return own->detach().cpu().contiguous();
    if (group_.rank() != 0) {
      if (own != nullptr) group_.send(own->detach().cpu().reshape({-1}), 0).wait();
      return {};
    }
    const std::vector<TensorRange>& ranges = shared->second;
    const TensorRange& first = ranges.front();
    const torch::Tensor all =
        at::empty({first.elements()}, on_host(*nn::scalar_type_of(entry.type)));
    if (own != nullptr) part_of(all, first).copy_(own->detach().reshape({-1}));
    for_each_other(ranges,
        [&](int rank, const TensorRange& range) { group_.recv(part_of(all, range), rank).wait(); });
    return all.as_strided(first.whole, strides_of(first.whole, first.order)).contiguous();
  }

  /// Gives each rank what it holds of a tensor that the first has whole. A collective.
  void give(const TensorEntry& entry, const torch::Tensor& all) const {
    const torch::Tensor* const own = state_.find(entry.name);
    torch::Tensor part;
    if (own != nullptr) part = at::empty({own->numel()}, on_host(own->scalar_type()));
    if (const auto shared = held_.find(entry.name); shared == held_.end()) {
      if (group_.rank() == 0) part.copy_(all.reshape({-1}));
      if (part.numel() > 0) group_.broadcast(part, 0).wait();
    } else if (group_.rank() == 0) {
      const TensorRange& first = shared->second.front();
      const torch::Tensor row =
          (first.order.empty() ? all : all.permute(first.order)).reshape({-1});
      if (own != nullptr) part.copy_(part_of(row, first));
      for_each_other(shared->second, [&](int rank, const TensorRange& range) {
        group_.send(part_of(row, range), rank).wait();
      });
    } else if (own != nullptr) {
      group_.recv(part, 0).wait();
    }
    if (own != nullptr) own->detach().copy_(part.view(own->sizes()));
  }

 private:
  static torch::Tensor part_of(const torch::Tensor& row, const TensorRange& range) {
    return row.narrow(0, range.begin, range.size());
  }

  static void for_each_other(const std::vector<TensorRange>& ranges, const auto& body) {
    for (std::size_t rank = 1; rank < ranges.size(); ++rank)
      if (ranges[rank].size() > 0) body(static_cast<int>(rank), ranges[rank]);
  }

  // Who has nothing of a tensor does not know its type.
  void exchange(const TensorRanges& ranges) {
    const std::int64_t numbers = 3 * std::ssize(ranges);
    if (numbers == 0) return;
    const torch::Tensor own = at::empty({numbers}, on_host(torch::kLong));
    auto* next = own.mutable_data_ptr<std::int64_t>();
    for (const auto& [name, range] : ranges) {
      const torch::Tensor* const tensor = state_.find(name);
      *next++ = range.begin;
      *next++ = range.end;
      *next++ = tensor == nullptr
                    ? -1
                    : static_cast<std::int64_t>(*nn::element_type_of(tensor->scalar_type()));
    }
    const torch::Tensor all = at::empty({group_.size() * numbers}, on_host(torch::kLong));
    group_.all_gather(all, own).wait();
    const torch::Tensor of_ranks = all.view({group_.size(), std::ssize(ranges), 3});
    std::int64_t place = 0;
    for (const auto& [name, range] : ranges)
      add(name, range, of_ranks.select(1, place++).contiguous());
  }

  void add(const std::string& name, const TensorRange& own, const torch::Tensor& of_ranks) {
    if (own.elements() == 0) return;
    const auto* found = of_ranks.const_data_ptr<std::int64_t>();
    std::int64_t type = -1;
    auto& held = held_[name];
    for (int rank = 0; rank < group_.size(); ++rank, found += 3) {
      held.push_back({.whole = own.whole, .order = own.order, .begin = found[0], .end = found[1]});
      type = std::max(type, found[2]);
    }
    const torch::Tensor* const tensor = state_.find(name);
    check((tensor == nullptr ? 0 : tensor->numel()) ==
              held[static_cast<std::size_t>(group_.rank())].size(),
        "rank ", group_.rank(), " has other elements of ", name, " than it says");
    check_cover(name, held);
    entries_.push_back(
        {.name = name, .type = static_cast<ElementType>(type), .shape = own.whole, .bytes = {}});
  }

  static void check_cover(const std::string& name, std::vector<TensorRange> ranges) {
    std::ranges::sort(
        ranges, {}, [](const auto& range) { return std::pair(range.begin, range.end); });
    std::int64_t covered = 0;
    for (const TensorRange& range : ranges) {
      if (range.size() == 0) continue;
      check(range.begin == covered, "the ranks share ", name, ", but elements from ",
          std::min(range.begin, covered), " on are held by none of them, or by two");
      covered = range.end;
    }
    check(covered == ranges.front().elements(), "the ranks share ", name, ", but elements from ",
        covered, " on are held by none of them");
  }

  const nn::NamedTensors& state_;
  const ProcessGroup& group_;
  std::vector<TensorEntry> entries_;
  std::map<std::string, std::vector<TensorRange>> held_;  // by each rank
};

std::span<const std::uint8_t> bytes_in(const torch::Tensor& tensor) {
  return {static_cast<const std::uint8_t*>(tensor.const_data_ptr()), tensor.nbytes()};
}

}  // namespace

void save_shared_weights(const nn::NamedTensors& state, const TensorRanges& ranges,
    const ProcessGroup& group, const std::filesystem::path& file,
    const std::map<std::string, std::string>& metadata) {
  const SharedWeights weights(state, ranges, group);
  const std::vector<TensorEntry>& entries = weights.entries();
  NoSink nothing;
  std::exception_ptr failure;
  const auto attempt = [&](const auto& work) {
    if (group.rank() != 0 || failure) return;
    try {
      work();
    } catch (const std::exception&) {
      failure = std::current_exception();  // the others go on sending
    }
  };
  std::optional<AtomicFile> written;
  attempt([&] { write_safetensors_header(written.emplace(file), entries, metadata); });
  for (const std::size_t place : write_safetensors_header(nothing, entries, metadata)) {
    const torch::Tensor whole = weights.whole(entries[place]);
    work_patiently([&] { attempt([&] { written->write(bytes_in(whole)); }); }, group);
  }
  const auto finish = [&] {
    attempt([&] { written->commit(); });
    if (failure) std::rethrow_exception(failure);
  };
  work_patiently(finish, group);
}

void load_shared_weights(const nn::NamedTensors& state, const TensorRanges& ranges,
    const ProcessGroup& group, const std::filesystem::path& file) {
  const at::NoGradGuard no_gradients;
  const SharedWeights weights(state, ranges, group);
  std::optional<TensorFile> saved;
  const auto open = [&] {
    saved = read_weights(file);
    for (const TensorEntry& entry : weights.entries()) {
      const TensorEntry* const found = saved->find(entry.name);
      if (found == nullptr || found->type != entry.type || found->shape != entry.shape)
        throw DataError(concat(file.string(), ": has no ", torch_name(entry.type), ' ',
            shape_text(entry.shape), ' ', entry.name));
    }
  };
  do_on_root(open, group);
  for (const TensorEntry& entry : weights.entries()) {
    torch::Tensor whole;
    const auto read = [&] {
      if (saved) whole = nn::tensor_of(*saved->find(entry.name));
    };
    work_patiently(read, group);
    weights.give(entry, whole);
  }
  do_on_root([&] { saved->require_unchanged(); }, group);
}

}  // namespace lockstep
