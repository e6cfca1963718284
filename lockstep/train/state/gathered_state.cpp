#include "lockstep/train/state/gathered_state.h"

#include <cstdint>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/tensor.h>

#include "lockstep/core/error.h"
#include "lockstep/parallel/pipeline/payload.h"

namespace lockstep {
namespace {

torch::Tensor as_row(const torch::Tensor& tensor) {
  return tensor.as_strided({tensor.numel()}, {1});
}

void send_sized(const torch::Tensor& row, const ProcessGroup& group) {
  group.send(at::full({1}, row.numel(), torch::kLong), 0).wait();
  group.send(row, 0).wait();
}

torch::Tensor receive_sized(torch::ScalarType type, int from, const ProcessGroup& group) {
  const torch::Tensor size = at::empty({1}, torch::kLong);
  group.recv(size, from).wait();
  torch::Tensor row = at::empty({size.item<std::int64_t>()}, type);
  group.recv(row, from).wait();
  return row;
}

// Names end in a zero byte each: none can hold one.
torch::Tensor bytes_of_names(const nn::NamedTensors& state) {
  std::string text;
  for (const auto& item : state) text += item.key() + '\0';
  torch::Tensor bytes = at::empty({std::ssize(text)}, torch::kByte);
  std::memcpy(bytes.mutable_data_ptr(), text.data(), text.size());
  return bytes;
}

std::vector<std::string> names_of_bytes(const torch::Tensor& bytes) {
  const auto* at = reinterpret_cast<const char*>(bytes.const_data_ptr<std::uint8_t>());
  const char* const end = at + bytes.numel();
  std::vector<std::string> names;
  for (; at != end; at += names.back().size() + 1) names.emplace_back(at);
  return names;
}

void send_state(const nn::NamedTensors& state, const ProcessGroup& group) {
  Payload payload{ValueForm::kTensor, {}, 0};
  for (const auto& item : state) {
    const torch::Tensor value = item.value().detach();
    payload.values.push_back(value.contiguous(value.suggest_memory_format()));
  }
  send_sized(bytes_of_names(state), group);
  send_sized(at::tensor(describe({}, payload), torch::kLong), group);
  for (const torch::Tensor& value : payload.values)
    if (value.numel() > 0) group.send(as_row(value), 0).wait();
}

void receive_state(nn::NamedTensors& state, int from, const ProcessGroup& group) {
  const auto names = names_of_bytes(receive_sized(torch::kByte, from, group));
  const torch::Tensor numbers = receive_sized(torch::kLong, from, group);
  const auto* first = numbers.const_data_ptr<std::int64_t>();
  const Payload payload = read_description({first, first + numbers.numel()}, torch::kCPU).second;
  if (names.size() != payload.values.size())
    throw CommError(concat("train: rank ", from, " names other tensors than it sends"));
  for (std::size_t index = 0; index < names.size(); ++index) {
    const torch::Tensor& value = payload.values[index];
    if (value.numel() > 0) group.recv(as_row(value), from).wait();
    state.insert(names[index], value);
  }
}

}  // namespace

nn::NamedTensors gathered_state(const nn::NamedTensors& own, const ProcessGroup& stages) {
  if (stages.rank() != 0) {
    send_state(own, stages);
    return nn::NamedTensors("Tensor");
  }
  nn::NamedTensors all = own;
  for (int rank = 1; rank < stages.size(); ++rank) receive_state(all, rank, stages);
  return all;
}

}  // namespace lockstep
