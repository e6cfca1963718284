#include "lockstep/parallel/pipeline/micro_batch.h"

#include <numeric>
#include <utility>

#include <ATen/ops/cat.h>
#include <ATen/ops/zeros.h>

#include "lockstep/core/error.h"

namespace lockstep {

std::vector<std::int64_t> micro_batch_sizes(std::int64_t batch, int chunks) {
  check(chunks >= 1, "pipeline: a batch is cut into at least one micro-batch, not ", chunks);
  check(batch >= 1, "pipeline: the batch is empty");
  std::vector<std::int64_t> sizes;
  for (std::int64_t chunk = 0; chunk < chunks && chunk < batch; ++chunk)
    sizes.push_back(batch / chunks + (chunk < batch % chunks ? 1 : 0));
  return sizes;
}

std::vector<torch::Tensor> split_batch(
    const torch::Tensor& batch, const std::vector<std::int64_t>& sizes) {
  return batch.split_with_sizes(sizes, 0);
}

std::vector<double> loss_shares(const std::vector<std::int64_t>& sizes, LossReduction reduction) {
  const auto batch =
      static_cast<double>(std::accumulate(sizes.begin(), sizes.end(), std::int64_t{0}));
  std::vector<double> shares;
  for (const std::int64_t size : sizes)
    shares.push_back(reduction == LossReduction::kSum ? 1 : static_cast<double>(size) / batch);
  return shares;
}

LossSum::LossSum(LossFunction loss, const torch::Tensor& target,
    const std::vector<std::int64_t>& sizes, LossReduction reduction)
    : loss_(std::move(loss)),
      targets_(split_batch(target, sizes)),
      shares_(loss_shares(sizes, reduction)),
      losses_(sizes.size()) {}

// Called again when a checkpointed stage computes anew; the same loss is then kept again.
torch::Tensor LossSum::operator()(torch::nn::AnyValue& output, int micro_batch) {
  const auto index = static_cast<std::size_t>(micro_batch);
  auto* const scores = output.try_get<torch::Tensor>();
  check(scores != nullptr, "pipeline: a loss needs a last stage that gives one tensor");
  const torch::Tensor loss = loss_(*scores, targets_.at(index).to(scores->device()));
  check(loss.numel() == 1, "pipeline: the loss function gave ", loss.sizes(),
      " instead of a scalar; reduce it by mean or sum");
  const torch::Tensor share = shares_[index] == 1 ? loss : loss * shares_[index];
  losses_[index] = share.detach();
  return share;
}

torch::Tensor LossSum::sum() const {
  torch::Tensor sum = losses_.front().clone();
  for (std::size_t index = 1; index < losses_.size(); ++index) sum += losses_[index];
  return sum;
}

void put_inputs(
    Runner& runner, const torch::Tensor& input, const std::vector<std::int64_t>& sizes) {
  const auto pieces = split_batch(input.detach(), sizes);
  for (std::size_t index = 0; index < pieces.size(); ++index) {
    const torch::Tensor piece = pieces[index].detach().set_requires_grad(input.requires_grad());
    runner.put({Direction::kForward, 0, static_cast<int>(index)}, {ValueForm::kTensor, {piece}, 0});
  }
}

torch::Tensor take_outputs(Runner& runner, int stages, std::size_t micro_batches) {
  std::vector<torch::Tensor> pieces;
  for (std::size_t index = 0; index < micro_batches; ++index) {
    const Payload output = runner.take({Direction::kForward, stages, static_cast<int>(index)});
    check(output.form == ValueForm::kTensor,
        "pipeline: the last stage must give one tensor to be called like a module");
    pieces.push_back(output.values.at(0).detach());
  }
  return at::cat(pieces);
}

void put_output_gradients(Runner& runner, int stages, const torch::Tensor& gradient,
    const std::vector<std::int64_t>& sizes) {
  const auto pieces = split_batch(gradient, sizes);
  for (std::size_t index = 0; index < pieces.size(); ++index) {
    runner.put({Direction::kBackward, stages - 1, static_cast<int>(index)},
        {ValueForm::kTensor, {pieces[index]}, 0});
  }
}

torch::Tensor take_input_gradient(Runner& runner, const std::vector<std::int64_t>& sizes) {
  std::vector<torch::Tensor> pieces;
  torch::Tensor example;
  for (std::size_t index = 0; index < sizes.size(); ++index) {
    const Payload back = runner.take({Direction::kBackward, -1, static_cast<int>(index)});
    pieces.push_back(back.values.at(0));
    if (pieces.back().defined()) example = pieces.back();
  }
  if (!example.defined()) return {};
  for (std::size_t index = 0; index < sizes.size(); ++index) {
    if (pieces[index].defined()) continue;
    auto shape = example.sizes().vec();
    shape[0] = sizes[index];
    pieces[index] = at::zeros(shape, example.options());
  }
  return at::cat(pieces);
}

void hand_on_input_gradient(
    Runner& runner, const torch::Tensor& input, const std::vector<std::int64_t>& sizes) {
  if (!input.requires_grad()) return;
  const torch::Tensor gradient = take_input_gradient(runner, sizes);
  if (gradient.defined()) input.backward(gradient.to(input.device()));
}

}  // namespace lockstep
