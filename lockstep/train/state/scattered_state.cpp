#include "lockstep/train/state/scattered_state.h"

#include <string>
#include <vector>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <torch/types.h>

#include "lockstep/core/text.h"
#include "lockstep/device/host_tensor.h"
#include "lockstep/parallel/ddp/replicated_state.h"
#include "lockstep/snapshot/group_values.h"

namespace lockstep {
namespace {

// Names end in a zero byte each: none can hold one.
std::string names_to_have(const nn::NamedTensors& state) {
  std::string text;
  for (const auto& item : state) text += item.key() + '\0';
  return text;
}

// Row-major and on the host, whatever it is on the rank that takes it.
torch::Tensor row_major(const torch::Tensor& tensor) { return tensor.detach().cpu().contiguous(); }

torch::Tensor empty_as(const torch::Tensor& tensor) {
  return at::empty(tensor.sizes(), on_host(tensor.scalar_type()));
}

void send_named(
    const nn::NamedTensors& all, const std::string& text, int to, const ProcessGroup& stages) {
  std::vector<std::string> names = split(text, '\0');
  names.pop_back();  // what follows the last zero byte
  for (const std::string& name : names) {
    const torch::Tensor value = row_major(all[name]);
    if (value.numel() > 0) stages.send(value, to).wait();
  }
}

void receive_own(const nn::NamedTensors& own, const ProcessGroup& stages) {
  for (const auto& item : own) {
    if (item.value().numel() == 0) continue;
    const torch::Tensor value = empty_as(item.value());
    stages.recv(value, 0).wait();
    item.value().detach().copy_(value);
  }
}

void follow_first_replica(const nn::NamedTensors& own, const ProcessGroup& replicas) {
  std::vector<torch::Tensor> values;
  for (const auto& item : own) values.push_back(item.value());
  broadcast_all(values, 0, replicas);
}

}  // namespace

void scatter_state(const nn::NamedTensors& all, const nn::NamedTensors& own,
    const ProcessGroup& stages, const ProcessGroup& replicas) {
  const at::NoGradGuard no_gradients;
  if (replicas.rank() == 0) {
    const std::vector<std::string> names = gather_texts(names_to_have(own), 0, stages);
    if (stages.rank() != 0) {
      receive_own(own, stages);
    } else {
      for (const auto& item : own) item.value().detach().copy_(all[item.key()]);
      for (int rank = 1; rank < stages.size(); ++rank)
        send_named(all, names[static_cast<std::size_t>(rank)], rank, stages);
    }
  }
  follow_first_replica(own, replicas);
}

}  // namespace lockstep
