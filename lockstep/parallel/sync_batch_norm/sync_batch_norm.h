#pragma once

#include <ostream>
#include <utility>

#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/pimpl.h>
#include <torch/types.h>

#include "lockstep/comm/process_group.h"
#include "lockstep/parallel/operators/operator_rules.h"

namespace lockstep {

/// Normalises each channel of `input` [N, C, ...] by mean and variance over the batches of all
/// ranks, which may differ in size: batch norm in training as one process would do it on the whole.
///
/// Undefined weight and bias stand for one and zero. Defined running statistics are updated in
/// place, the variance unbiased, the same on all ranks. Half types give half outputs, their
/// statistics are of fp32.
///
/// A collective of the group, and its backward another one: every rank that called it must run it.
/// As with any gradient of data parallel training, those of weight and bias are this rank's part.
/// Throws InvalidArgument if all ranks together have but one value a channel, and Error for a
/// second derivative.
torch::Tensor sync_batch_norm(const torch::Tensor& input, const torch::Tensor& weight,
    const torch::Tensor& bias, const torch::Tensor& running_mean, const torch::Tensor& running_var,
    double momentum, double eps, const ProcessGroup& group);

/// Computes the batch norm layers of unmodified modules by sync_batch_norm(), in this thread while
/// it exists: C++ modules hold their layers by type, so it is the operator that is replaced.
///
///     { SyncBatchNormScope synchronised(world); loss = loss_of(net->forward(images)); }
///     loss.backward();
///
/// All ranks must make the same forward. Evaluation computes locally, without a collective; a layer
/// without running statistics normalises by the batch in evaluation too, and so calls the others.
/// LibTorch's layers refuse a share of one value a channel before any rule is asked; a
/// SyncBatchNorm layer takes it.
class [[nodiscard]] SyncBatchNormScope {
 public:
  explicit SyncBatchNormScope(ProcessGroup group) : rule_(std::move(group)), scope_(rule_) {}

 private:
  class Rule final : public BatchNormRule {
   public:
    explicit Rule(ProcessGroup group) : group_(std::move(group)) {}
    torch::Tensor batch_norm(const BatchNormCall& call) override;

   private:
    ProcessGroup group_;
  };

  Rule rule_;
  BatchNormScope scope_;
};

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
