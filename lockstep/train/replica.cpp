#include "lockstep/train/replica.h"

#include <ATen/ops/cross_entropy_loss.h>
#include <torch/utils.h>

#include "lockstep/nn/autocast.h"
#include "lockstep/train/optimizer.h"

namespace lockstep {
namespace {

nn::Model seeded_model(const TrainOptions& options, std::int64_t classes) {
  torch::manual_seed(static_cast<std::uint64_t>(options.seed));
  return nn::make_model(options.model, classes);
}

}  // namespace

Replica::Replica(const TrainOptions& options, std::int64_t classes, const ProcessGroup& world)
    : module_(seeded_model(options, classes)), bf16_(options.precision == Precision::kBf16Mixed) {
  if (options.parallel == Parallel::kDdp) parallel_.emplace(module_, world);
  optimizer_ = make_optimizer(options.optimizer, module_->parameters(), world.size());
}

torch::Tensor Replica::forward(const torch::Tensor& images, bool training) {
  const nn::Autocast autocast(at::kCPU, at::kBFloat16, bf16_);
  // Evaluation goes past the wrapper: it has no gradients to average.
  const bool wrapped = training && parallel_;
  return (wrapped ? (*parallel_)(images) : module_->forward(images)).to(torch::kFloat);
}

torch::Tensor Replica::step(const Batch& batch) {
  optimizer_->zero_grad();
  const torch::Tensor loss = at::cross_entropy_loss(forward(batch.data, true), batch.target);
  loss.backward();
  optimizer_->step();
  return loss;
}

double Replica::communication_seconds() const {
  return parallel_ ? parallel_->communication_seconds() : 0;
}

}  // namespace lockstep
