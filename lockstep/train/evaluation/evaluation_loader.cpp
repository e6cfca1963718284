#include "lockstep/train/evaluation/evaluation_loader.h"

#include "lockstep/data/distributed_sampler.h"

namespace lockstep {

Loader evaluation_loader(const data::SamplesPointer& samples, const ProcessGroup& replicas,
    const Replica& replica, data::ResidentSets& resident, const EvaluationBatches& batches) {
  const DistributedSampler sampler(samples->size(), replicas, {.shuffle = false, .padding = false});
  return {samples, sampler.epoch(0), batches.batch_size,
      {.dtype = replica.image_type(),
          .workers = batches.workers,
          .pinned = !replica.device().is_cpu(),
          .channels_last = true,
          .device = replica.device(),
          .resident = resident.of(*samples)}};
}

}  // namespace lockstep
