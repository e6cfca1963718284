#include "lockstep/train/replica_kinds.h"

#include <utility>

#include <ATen/ops/cross_entropy_loss.h>

namespace lockstep {
namespace {

torch::Tensor loss_of(const torch::Tensor& scores, const torch::Tensor& labels) {
  return at::cross_entropy_loss(scores.to(torch::kFloat), labels);
}

PipelineOptions pipeline_options(const TrainOptions& options) {
  return PipelineOptions()
      .chunks(chunks_of(options))
      .schedule(schedule_of(options))
      .checkpoint(options.pipeline.checkpoint)
      .deferred_batch_norm(options.pipeline.deferred_batch_norm);
}

}  // namespace

ModuleReplica::ModuleReplica(
    const TrainOptions& options, const Layout& layout, nn::Model model, const RankGroups& groups)
    : Replica(options, layout, groups), model_(std::move(model)) {
  if (options.parallel == Parallel::kDdp) {
    parallel_.emplace(
        model_,
        groups.replicas,
        DistributedDataParallelOptions().sync_batch_norm(options.sync_batch_norm));
  }
  make_optimizer();
}

torch::Tensor ModuleReplica::forward_and_backward(const Batch& batch) {
  const torch::Tensor scores = parallel_ ? (*parallel_)(batch.data) : model_(batch.data);
  const torch::Tensor loss = loss_of(scores, batch.target);
  loss.backward();
  return loss.detach();
}

double ModuleReplica::communication_seconds() const {
  return parallel_ ? parallel_->communication_seconds() : 0;
}

DataParallelReplica::DataParallelReplica(
    const TrainOptions& options,
    const Layout& layout,
    nn::Model model,
    const RankGroups& groups,
    const std::vector<Place>& places)
    : Replica(options, layout, groups), model_(std::move(model)), parallel_(model_, places) {
  make_optimizer();
}

torch::Tensor DataParallelReplica::forward_and_backward(const Batch& batch) {
  const torch::Tensor loss = loss_of(parallel_(batch.data), batch.target);
  loss.backward();
  return loss.detach();
}

PipelineReplica::PipelineReplica(
    const TrainOptions& options,
    const Layout& layout,
    const nn::Model& model,
    const std::vector<int>& balance,
    const RankGroups& groups,
    const std::vector<Place>& places)
    : Replica(options, layout, groups),
      pipeline_(model->layers(), balance, places, pipeline_options(options), groups.replicas) {
  make_optimizer();
}

torch::Tensor PipelineReplica::forward_and_backward(const Batch& batch) {
  return pipeline_.step(batch.data, batch.target, loss_of);
}

StageReplica::StageReplica(
    const TrainOptions& options,
    const Layout& layout,
    const nn::Model& model,
    const std::vector<int>& balance,
    const RankGroups& groups)
    : Replica(options, layout, groups),
      stage_(model->layers(), balance, groups.stages, pipeline_options(options), groups.replicas) {
  make_optimizer();
}

torch::Tensor StageReplica::forward_and_backward(const Batch& batch) {
  const torch::Tensor loss = stage_.step(batch.data, batch.target, loss_of);
  waited_seconds_ += stage_.timing().waited;
  return loss;
}

}  // namespace lockstep
