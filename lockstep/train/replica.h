#pragma once

#include <memory>
#include <optional>
#include <vector>

#include <torch/optim/optimizer.h>
#include <torch/types.h>

#include "lockstep/comm/process_group.h"
#include "lockstep/data/loader.h"
#include "lockstep/nn/models/model.h"
#include "lockstep/parallel/distributed_data_parallel.h"
#include "lockstep/train/options.h"

namespace lockstep {

/// Is one rank's model with its optimizer, wrapped for the way of spreading that the options name.
class Replica {
 public:
  /// Makes the model from the options' seed. With `ddp` a collective.
  Replica(const TrainOptions& options, std::int64_t classes, const ProcessGroup& world);

  /// Gives the scores of images, as float whatever the precision; for evaluation.
  torch::Tensor scores(const torch::Tensor& images) { return forward(images, false); }

  /// Makes one optimizer step and gives the mean loss over the batch, which is not read here.
  torch::Tensor step(const Batch& batch);

  void set_training(bool training) { module_->train(training); }
  std::vector<torch::Tensor> parameters() const { return module_->parameters(); }

  /// Gives the type of images that the model computes fastest with.
  torch::ScalarType image_type() const { return bf16_ ? torch::kBFloat16 : torch::kFloat; }

  /// Counts the seconds that backward has waited for other ranks since the start.
  double communication_seconds() const;

 private:
  torch::Tensor forward(const torch::Tensor& images, bool training);

  nn::Model module_;
  std::optional<DistributedDataParallel<nn::Model>> parallel_;
  std::unique_ptr<torch::optim::Optimizer> optimizer_;
  bool bf16_;
};

}  // namespace lockstep
