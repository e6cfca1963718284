#include "lockstep/parallel/pipeline/stage_replicas.h"

#include <utility>

namespace lockstep {

namespace {

ReplicatedState state_of_layers(const Layers& layers) {
  ReplicatedState state;
  for (const auto& layer : layers) state.add(*layer.value().ptr(), layer.key() + ".");
  return state;
}

}  // namespace

StageReplicas::StageReplicas(const Layers& layers, ProcessGroup group) : layers_(layers) {
  if (group.size() == 1) return;
  sync_.emplace(state_of_layers(layers_), std::move(group), DistributedDataParallelOptions());
  sync_->reducer().set_synchronised(false);
}

void StageReplicas::before_step() {
  if (!sync_) return;
  sync_->check_unchanged(state_of_layers(layers_));
  sync_->reducer().set_synchronised(!accumulates_);
  sync_->before_forward(true);
  sync_->reducer().set_synchronised(false);
}

void StageReplicas::after_step() {
  if (sync_ && !accumulates_) sync_->reduce_accumulated();
}

}  // namespace lockstep
