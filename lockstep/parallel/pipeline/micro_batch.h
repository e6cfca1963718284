#pragma once

#include <cstdint>
#include <vector>

#include <torch/types.h>

#include "lockstep/parallel/pipeline/pipeline_options.h"
#include "lockstep/parallel/pipeline/runner.h"

namespace lockstep {

/// Returns the sizes of the micro-batches of a batch, as tensor_split cuts it, without empty ones:
/// 5 in 4 is 2 1 1 1, 2 in 4 is 1 1. Throws InvalidArgument for chunks < 1 or an empty batch.
std::vector<std::int64_t> micro_batch_sizes(std::int64_t batch, int chunks);

/// Cuts a batch [N, ...] into its micro-batches, as views.
std::vector<torch::Tensor> split_batch(
    const torch::Tensor& batch, const std::vector<std::int64_t>& sizes);

/// Returns the gradient's share of each micro-batch's loss in the batch's.
std::vector<double> loss_shares(const std::vector<std::int64_t>& sizes, LossReduction reduction);

/// The sum of the losses of micro-batches, made in the last stage's thread.
class LossSum {
 public:
  LossSum(LossFunction loss, const torch::Tensor& target, const std::vector<std::int64_t>& sizes,
      LossReduction reduction);
  /// Computes a micro-batch's share of the loss.
  torch::Tensor operator()(torch::nn::AnyValue& output, int micro_batch);
  /// Returns the batch's loss, detached.
  torch::Tensor sum() const;

 private:
  LossFunction loss_;
  std::vector<torch::Tensor> targets_;
  std::vector<double> shares_;
  std::vector<torch::Tensor> losses_;
};

/// Passes the micro-batches to the first stage.
void put_inputs(Runner& runner, const torch::Tensor& input, const std::vector<std::int64_t>& sizes);

/// Returns the last stage's outputs for all micro-batches, joined along the batch.
torch::Tensor take_outputs(Runner& runner, int stages, std::size_t micro_batches);

/// Passes the gradients of its outputs to the last stage.
void put_output_gradients(Runner& runner, int stages, const torch::Tensor& gradient,
    const std::vector<std::int64_t>& sizes);

/// Returns the gradient of the input, undefined if no micro-batch has one.
torch::Tensor take_input_gradient(Runner& runner, const std::vector<std::int64_t>& sizes);

/// Runs backward from an input that requires a gradient, if it has one.
void hand_on_input_gradient(
    Runner& runner, const torch::Tensor& input, const std::vector<std::int64_t>& sizes);

}  // namespace lockstep
