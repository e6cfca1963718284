#pragma once

#include <cstdint>

#include "lockstep/comm/process_group.h"
#include "lockstep/data/device_images.h"
#include "lockstep/data/loader.h"
#include "lockstep/data/samples.h"
#include "lockstep/train/strategy/replica.h"

namespace lockstep {

/// The batches of an evaluation, and the threads that prepare them.
struct EvaluationBatches {
  std::int64_t batch_size = 128;
  int workers = 0;
};

/// Returns this rank's share of a set, in the set's order, in the form that the replica computes
/// fastest with. Nothing is dealt out twice, so what is counted is the whole set.
Loader evaluation_loader(const data::SamplesPointer& samples, const ProcessGroup& replicas,
    const Replica& replica, data::ResidentSets& resident, const EvaluationBatches& batches);

}  // namespace lockstep
