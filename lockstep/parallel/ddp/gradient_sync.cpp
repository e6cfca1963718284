#include "lockstep/parallel/ddp/gradient_sync.h"

#include <unordered_set>
#include <utility>

#include <torch/csrc/autograd/grad_mode.h>

#include "lockstep/core/error.h"
#include "lockstep/parallel/ddp/replicas.h"

namespace lockstep {
namespace {

ReplicatedState state_of(const torch::nn::Module& module) {
  ReplicatedState state;
  state.add(module);
  return state;
}

// A tied tensor is listed once per name; it is one gradient.
NamedTensors trained_parameters(const NamedTensors& parameters) {
  NamedTensors trained;
  std::unordered_set<const void*> seen;
  for (const auto& [name, parameter] : parameters) {
    if (parameter.requires_grad() && seen.insert(parameter.unsafeGetTensorImpl()).second)
      trained.emplace_back(name, parameter);
  }
  return trained;
}

std::vector<torch::Tensor> tensors_of(const NamedTensors& named) {
  std::vector<torch::Tensor> tensors;
  for (const auto& entry : named) tensors.push_back(entry.second);
  return tensors;
}

// Checks first: the reducer's own collectives need equal shapes.
NamedTensors agreed_parameters(const ReplicatedState& state, const ProcessGroup& group) {
  NamedTensors all = state.parameters;
  all.insert(all.end(), state.buffers.begin(), state.buffers.end());
  check_same_on_all_ranks("DistributedDataParallel: the model's tensors", all, group);
  broadcast_all(tensors_of(all), 0, group);
  return trained_parameters(state.parameters);
}

ReducerOptions reducer_options(
    const ReplicatedState& state, const DistributedDataParallelOptions& options) {
  check(
      options.bucket_bytes() > 0 && options.first_bucket_bytes() > 0,
      "DistributedDataParallel: bucket sizes must be positive: ", options.first_bucket_bytes(),
      " and ", options.bucket_bytes());
  return {
      .first_bucket_bytes = static_cast<std::size_t>(options.first_bucket_bytes()),
      .bucket_bytes = static_cast<std::size_t>(options.bucket_bytes()),
      .find_unused_parameters = options.find_unused_parameters(),
      .static_graph = options.static_graph(),
      .sparse = state.sparse};
}

}  // namespace

GradientSync::GradientSync(
    const torch::nn::Module& module, ProcessGroup group,
    const DistributedDataParallelOptions& options)
    : GradientSync(state_of(module), std::move(group), options) {}

GradientSync::GradientSync(
    const ReplicatedState& state, ProcessGroup group, const DistributedDataParallelOptions& options)
    : GradientSync(std::move(group), state.without(options.ignored()), options) {}

GradientSync::GradientSync(
    ProcessGroup group, const ReplicatedState& kept, const DistributedDataParallelOptions& options)
    : group_(group),
      parameters_(tensors_of(kept.parameters)),
      buffers_(
          options.broadcast_buffers() ? tensors_of(kept.buffers) : std::vector<torch::Tensor>()),
      reducer_(agreed_parameters(kept, group), group, reducer_options(kept, options)) {
  if (options.sync_batch_norm()) norm_group_ = group_.split(0, group_.rank());
  if (options.comm_hook()) reducer_.register_comm_hook(options.comm_hook());
}

// Evaluation must not need the other ranks: one rank may evaluate alone.
void GradientSync::before_forward(bool training) {
  reducer_.check_no_pass_was_broken_off();
  if (!training || !torch::GradMode::is_enabled()) return;
  const bool follows = reducer_.is_synchronised() && !buffers_.empty();
  int root = 0;
  if (join_ != nullptr) root = join_->announce(follows ? forward_ + 1 : forward_).front();
  if (follows) broadcast_all(buffers_, root, group_);
}

std::unique_ptr<SyncBatchNormScope> GradientSync::synchronised_batch_norm(bool training) const {
  if (!training || !norm_group_) return nullptr;
  return std::make_unique<SyncBatchNormScope>(*norm_group_);
}

NoSync::NoSync(std::shared_ptr<GradientSync> sync)
    : sync_(std::move(sync)), before_(sync_->reducer().is_synchronised()) {
  sync_->reducer().set_synchronised(false);
}

NoSync::~NoSync() {
  if (sync_) sync_->reducer().set_synchronised(before_);
}

}  // namespace lockstep
