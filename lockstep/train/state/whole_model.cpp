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

/// The tensors that ranks share, of which each knows what the others hold.
class SharedTensors {
 public:
  /// A collective.
  SharedTensors(
      const nn::NamedTensors& state, const TensorRanges& ranges, const ProcessGroup& group)
      : state_(state), group_(group) {
    exchange(ranges);
    for (const auto& item : state) {
      const auto range = ranges.find(item.key());
      const bool is_shared = range != ranges.end();
      if (is_shared) check_cover(item.key());
      entries_.push_back({.name = item.key(),
          .type = nn::element_type_of(item.value().scalar_type()).value(),
          .shape = is_shared ? range->second.whole : item.value().sizes().vec(),
          .bytes = {}});
    }
  }

  /// Returns names, types and whole shapes.
  const std::vector<TensorEntry>& entries() const { return entries_; }

  /// Brings a tensor together on the first rank; undefined elsewhere. A collective.
  torch::Tensor whole(std::size_t place) const {
    const torch::Tensor own = state_[place].value().detach().cpu().contiguous();
    const auto shared = held_.find(entries_[place].name);
    if (shared == held_.end()) return own;
    const TensorRange& of_this = shared->second[static_cast<std::size_t>(group_.rank())];
    if (group_.rank() != 0) {
      if (of_this.size() > 0) group_.send(own, 0).wait();
      return {};
    }
    const torch::Tensor all = at::empty({of_this.elements()}, on_host(own.scalar_type()));
    part_of(all, of_this).copy_(own);
    for_each_other(shared->second,
        [&](int rank, const TensorRange& range) { group_.recv(part_of(all, range), rank).wait(); });
    return all;
  }

  /// Gives each rank what it holds of a tensor that the first has whole. A collective.
  void give(std::size_t place, const torch::Tensor& all) const {
    const torch::Tensor own = state_[place].value().detach();
    const torch::Tensor received = at::empty(own.sizes(), on_host(own.scalar_type()));
    const auto shared = held_.find(entries_[place].name);
    if (shared == held_.end()) {
      if (group_.rank() == 0) received.copy_(all);
      if (received.numel() > 0) group_.broadcast(received, 0).wait();
    } else if (group_.rank() == 0) {
      const torch::Tensor row = all.reshape({-1});
      received.copy_(part_of(row, shared->second.front()));
      for_each_other(shared->second, [&](int rank, const TensorRange& range) {
        group_.send(part_of(row, range), rank).wait();
      });
    } else if (received.numel() > 0) {
      group_.recv(received, 0).wait();
    }
    own.copy_(received);
  }

 private:
  static torch::Tensor part_of(const torch::Tensor& row, const TensorRange& range) {
    return row.narrow(0, range.begin, range.size());
  }

  static void for_each_other(const std::vector<TensorRange>& ranges, const auto& body) {
    for (std::size_t rank = 1; rank < ranges.size(); ++rank)
      if (ranges[rank].size() > 0) body(static_cast<int>(rank), ranges[rank]);
  }

  void exchange(const TensorRanges& ranges) {
    const std::int64_t numbers = 2 * std::ssize(ranges);
    const torch::Tensor own = at::empty({numbers}, on_host(torch::kLong));
    auto* next = own.mutable_data_ptr<std::int64_t>();
    for (const auto& [name, range] : ranges) *next++ = range.begin, *next++ = range.end;
    const torch::Tensor all = at::empty({group_.size() * numbers}, on_host(torch::kLong));
    if (numbers > 0) group_.all_gather(all, own).wait();
    const auto* found = all.const_data_ptr<std::int64_t>();
    for (int rank = 0; rank < group_.size(); ++rank)
      for (const auto& [name, range] : ranges) {
        const std::int64_t begin = *found++, end = *found++;
        held_[name].push_back({.whole = range.whole, .begin = begin, .end = end});
      }
  }

  void check_cover(const std::string& name) const {
    std::vector<TensorRange> ranges = held_.at(name);
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
  const SharedTensors tensors(state, ranges, group);
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
  attempt([&] { write_safetensors_header(written.emplace(file), tensors.entries(), metadata); });
  for (const std::size_t place : write_safetensors_header(nothing, tensors.entries(), metadata)) {
    const torch::Tensor whole = tensors.whole(place);
    attempt([&] { written->write(bytes_in(whole)); });
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
  const SharedTensors tensors(state, ranges, group);
  std::optional<TensorFile> weights;
  const auto open = [&] {
    weights = read_weights(file);
    for (const TensorEntry& entry : tensors.entries()) {
      const TensorEntry* const found = weights->find(entry.name);
      if (found == nullptr || found->type != entry.type || found->shape != entry.shape)
        throw DataError(concat(file.string(), ": has no ", torch_name(entry.type), ' ',
            shape_text(entry.shape), ' ', entry.name));
    }
  };
  do_on_root(open, group);
  for (std::size_t place = 0; place < tensors.entries().size(); ++place)
    tensors.give(place,
        weights ? nn::tensor_of(*weights->find(tensors.entries()[place].name)) : torch::Tensor());
  do_on_root([&] { weights->require_unchanged(); }, group);
}

}  // namespace lockstep
