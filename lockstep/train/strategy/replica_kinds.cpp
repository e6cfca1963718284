#include "lockstep/train/strategy/replica_kinds.h"

#include <memory>
#include <optional>
#include <utility>

#include "lockstep/core/spans.h"
#include "lockstep/train/strategy/ddp_options.h"

namespace lockstep {
namespace {

PipelineOptions pipeline_options(const TrainOptions& options) {
  return PipelineOptions()
      .chunks(chunks_of(options))
      .schedule(schedule_of(options))
      .checkpoint(options.pipeline.checkpoint)
      .deferred_batch_norm(options.pipeline.deferred_batch_norm);
}

// Before the optimizer and the wrappers, which keep its tensors.
std::shared_ptr<nn::MultiInputModule> on_device(const nn::Model& model, torch::Device device) {
  model.ptr()->to(device);
  return model.ptr();
}

}  // namespace

ModuleReplica::ModuleReplica(const TrainOptions& options, const RankGroups& groups,
    const PreparedModel& prepared, const std::vector<Place>& places)
    : Replica(options, groups, prepared, places.front().device),
      model_(on_device(prepared.model, places.front().device)) {
  if (options.parallel == Parallel::kDp) threads_.emplace(model_, places);
  if (options.parallel == Parallel::kDdp)
    ranks_.emplace(model_, groups.replicas, ddp_options(options, scaler_of_loss()));
  make_optimizer();
}

// With frozen batch norms in evaluation, as in a step.
nn::Model ModuleReplica::copy_of_whole_model() {
  if (threads_) return nullptr;
  const bool was_training = model_->is_training();
  set_training(true);
  auto copy = std::dynamic_pointer_cast<nn::ModelImpl>(model_->clone());
  set_training(was_training);
  return nn::Model(std::move(copy));
}

torch::Tensor ModuleReplica::forward(const std::vector<torch::Tensor>& inputs) {
  if (threads_) return (*threads_)(inputs);
  return ranks_ ? (*ranks_)(inputs) : model_->forward(inputs);
}

torch::Tensor ModuleReplica::forward_and_backward(
    const Batch& batch, const LossFunction& loss, bool is_last_part) {
  std::optional<NoSync> accumulation;
  if (ranks_ && !is_last_part) accumulation.emplace(ranks_->no_sync());
  const torch::Tensor value = [&] {
    const nn::Autocast shorter = autocast();
    const SpanScope span(Activity::kForward, "forward");
    return loss(forward(batch.input_tensors()), batch.target());
  }();
  const SpanScope span(Activity::kBackward, "backward");
  value.backward();
  return value.detach();
}

double ModuleReplica::communication_seconds() const {
  return ranks_ ? ranks_->communication_seconds() : 0;
}

PipelineReplica::PipelineReplica(const TrainOptions& options, const RankGroups& groups,
    const PreparedModel& prepared, const std::vector<Place>& places)
    : Replica(options, groups, prepared, places.front().device),
      layers_(prepared.model->layers()),
      pipeline_(layers_, prepared.balance, places, pipeline_options(options), groups.replicas) {
  make_optimizer();
}

torch::Tensor PipelineReplica::forward_and_backward(
    const Batch& batch, const LossFunction& loss, bool is_last_part) {
  std::optional<PipelineCore::Accumulation> accumulation;
  if (!is_last_part) accumulation.emplace(pipeline_.no_sync());
  const nn::Autocast shorter = autocast();  // each stage ends it in its backward
  return pipeline_.step(batch.input(), batch.target(), loss);
}

StageReplica::StageReplica(const TrainOptions& options, const RankGroups& groups,
    const PreparedModel& prepared, torch::Device device)
    : Replica(options, groups, prepared, device),
      stage_(prepared.model->layers(), prepared.balance, groups.stages, pipeline_options(options),
          groups.replicas, device) {
  make_optimizer();
}

torch::Tensor StageReplica::forward_and_backward(
    const Batch& batch, const LossFunction& loss, bool is_last_part) {
  std::optional<PipelineCore::Accumulation> accumulation;
  if (!is_last_part) accumulation.emplace(stage_.no_sync());
  const nn::Autocast shorter = autocast();  // as above
  torch::Tensor value = stage_.step(batch.input(), batch.target(), loss);
  waited_seconds_ += stage_.timing().waited;
  return value;
}

}  // namespace lockstep
