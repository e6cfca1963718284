#pragma once

#include <cstdint>
#include <lockstep/lockstep.h>
#include <memory>

#include "metrics.h"
#include "model.h"
#include <torch/torch.h>

/// The model as it is trained: called like the net, it averages gradients over the ranks.
using Model = lockstep::DistributedDataParallel<std::shared_ptr<Net::ContainedType>>;

/// The options of a pass over the images.
struct PassOptions {
  std::int64_t batch_size = 128;  ///< of each rank
  int workers = 1;                ///< threads of each rank that prepare batches
  bool bf16 = false;              ///< compute convolutions and matrix products in bfloat16
  std::uint64_t seed = 42;
};

/// Trains for one epoch and returns the measures over all ranks, as evaluate() does. A collective.
Metrics train_epoch(Model& model, torch::optim::Optimizer& optimizer,
    const lockstep::data::SamplesPointer& images, std::int64_t epoch, const PassOptions& options,
    const lockstep::ProcessGroup& world);

/// Evaluates every image once, without training.
Metrics evaluate(Model& model, const lockstep::data::SamplesPointer& images,
    const PassOptions& options, const lockstep::ProcessGroup& world);
