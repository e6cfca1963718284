#include "lockstep/parallel/pipeline/stage_replicas.h"

#include <utility>

namespace lockstep {

StageReplicas::StageReplicas(const Layers& layers, ProcessGroup group) {
  if (group.size() == 1) return;
  ReplicatedState state;
  for (const auto& layer : layers) state.add(*layer.value().ptr(), layer.key() + ".");
  sync_.emplace(state, std::move(group), DistributedDataParallelOptions());
  sync_->reducer().set_synchronised(false);
}

void StageReplicas::before_step() {
  if (!sync_) return;
  sync_->reducer().set_synchronised(!accumulates_);
  sync_->before_forward(true);
  sync_->reducer().set_synchronised(false);
}

void StageReplicas::after_step() {
  if (sync_ && !accumulates_) sync_->reduce_accumulated();
}

}  // namespace lockstep
