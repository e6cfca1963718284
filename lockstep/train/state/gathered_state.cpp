#include "lockstep/train/state/gathered_state.h"

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/tensor.h>

#include "lockstep/core/error.h"
#include "lockstep/core/text.h"
#include "lockstep/parallel/pipeline/payload.h"
#include "lockstep/train/snapshot/group_values.h"

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
std::string text_of_names(const nn::NamedTensors& state) {
  std::string text;
  for (const auto& item : state) text += item.key() + '\0';
  return text;
}

void send_state(const nn::NamedTensors& state, const ProcessGroup& group) {
  Payload payload{ValueForm::kTensor, {}, 0};
  for (const auto& item : state) {
    const torch::Tensor value = item.value().detach();
    payload.values.push_back(value.contiguous(value.suggest_memory_format()));
  }
  send_sized(at::tensor(describe({}, payload), torch::kLong), group);
  for (const torch::Tensor& value : payload.values)
    if (value.numel() > 0) group.send(as_row(value), 0).wait();
}

void receive_state(
    nn::NamedTensors& state, const std::string& text, int from, const ProcessGroup& group) {
  std::vector<std::string> names = split(text, '\0');
  names.pop_back();  // what follows the last zero byte
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
  const std::vector<std::string> names = gather_texts(text_of_names(own), 0, stages);
  if (stages.rank() != 0) {
    send_state(own, stages);
    return nn::NamedTensors("Tensor");
  }
  nn::NamedTensors all = own;
  for (int rank = 1; rank < stages.size(); ++rank)
    receive_state(all, names[static_cast<std::size_t>(rank)], rank, stages);
  return all;
}

}  // namespace lockstep
