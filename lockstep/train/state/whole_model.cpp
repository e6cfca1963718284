#include "lockstep/train/state/whole_model.h"

#include <cstdio>
#include <cstring>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>

#include "lockstep/core/error.h"
#include "lockstep/core/text.h"
#include "lockstep/device/host_tensor.h"
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

}  // namespace lockstep
