#pragma once

#include <ostream>
#include <utility>

#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/pimpl.h>
#include <torch/types.h>

#include "lockstep/comm/process_group.h"

namespace lockstep {

/// A batch norm layer for inputs [N, C, ...] of any dimension that normalises by the batches of
/// all ranks in training (sync_batch_norm()), and locally in evaluation. Its parameters and buffers
/// are those of torch::nn::BatchNorm2d.
///
///     SyncBatchNorm norm(torch::nn::BatchNormOptions(64), world);
class SyncBatchNormImpl
    : public torch::nn::NormImplBase<0, SyncBatchNormImpl, torch::nn::BatchNormOptions> {
 public:
  SyncBatchNormImpl(const torch::nn::BatchNormOptions& norm, ProcessGroup group)
      : NormImplBase(norm), group_(std::move(group)) {}

  torch::Tensor forward(const torch::Tensor& input);

  void pretty_print(std::ostream& stream) const override;

 protected:
  void _check_input_dim(const torch::Tensor& input) override;

 private:
  double next_momentum();

  ProcessGroup group_;
};
TORCH_MODULE(SyncBatchNorm);

}  // namespace lockstep
