#include "lockstep/parallel/gradient_sync.h"

#include <unordered_set>
#include <utility>

#include <torch/csrc/autograd/grad_mode.h>

#include "lockstep/core/error.h"
#include "lockstep/parallel/replicas.h"

namespace lockstep {
namespace {

// A tied tensor is listed once per name; it is one gradient.
NamedTensors trained_parameters(const torch::nn::Module& module) {
  NamedTensors parameters;
  std::unordered_set<const void*> seen;
  for (const auto& entry : module.named_parameters()) {
    const torch::Tensor& parameter = entry.value();
    if (!parameter.requires_grad() || !seen.insert(parameter.unsafeGetTensorImpl()).second)
      continue;
    parameters.emplace_back(entry.key(), parameter);
  }
  return parameters;
}

NamedTensors whole_state(const torch::nn::Module& module) {
  NamedTensors state;
  for (const auto& entry : module.named_parameters())
    state.emplace_back(entry.key(), entry.value());
  for (const auto& entry : module.named_buffers()) state.emplace_back(entry.key(), entry.value());
  return state;
}

std::vector<torch::Tensor> tensors_of(const NamedTensors& named) {
  std::vector<torch::Tensor> tensors;
  for (const auto& entry : named) tensors.push_back(entry.second);
  return tensors;
}

// Checks first: the reducer's own collectives need equal shapes.
NamedTensors agreed_parameters(const torch::nn::Module& module, const ProcessGroup& group) {
  const NamedTensors state = whole_state(module);
  check_same_on_all_ranks("DistributedDataParallel: the model's tensors", state, group);
  broadcast_all(tensors_of(state), 0, group);
  return trained_parameters(module);
}

ReducerOptions reducer_options(const DistributedDataParallelOptions& options) {
  check(
      options.bucket_bytes() > 0 && options.first_bucket_bytes() > 0,
      "DistributedDataParallel: bucket sizes must be positive: ",
      options.first_bucket_bytes(),
      " and ",
      options.bucket_bytes());
  return {
      .first_bucket_bytes = static_cast<std::size_t>(options.first_bucket_bytes()),
      .bucket_bytes = static_cast<std::size_t>(options.bucket_bytes()),
      .find_unused_parameters = options.find_unused_parameters()};
}

}  // namespace

GradientSync::GradientSync(
    torch::nn::Module& module, ProcessGroup group, const DistributedDataParallelOptions& options)
    : group_(group),
      buffers_(options.broadcast_buffers() ? module.buffers() : std::vector<torch::Tensor>()),
      reducer_(agreed_parameters(module, group), group, reducer_options(options)) {}

// Evaluation must not need the other ranks: one rank may evaluate alone.
void GradientSync::before_forward(bool training) {
  if (!training || !torch::GradMode::is_enabled() || !reducer_.is_synchronised()) return;
  if (!buffers_.empty()) broadcast_all(buffers_, 0, group_);
}

NoSync::NoSync(std::shared_ptr<GradientSync> sync)
    : sync_(std::move(sync)), before_(sync_->reducer().is_synchronised()) {
  sync_->reducer().set_synchronised(false);
}

NoSync::~NoSync() {
  if (sync_) sync_->reducer().set_synchronised(before_);
}

}  // namespace lockstep
