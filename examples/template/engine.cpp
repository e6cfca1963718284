#include "engine.h"

namespace {

struct Pass {
  torch::Tensor loss, scores;
};

Pass forward(Model& model, const lockstep::Batch& batch, const PassOptions& options) {
  const lockstep::nn::Autocast autocast(torch::kCPU, torch::kBFloat16, options.bf16);
  const auto scores = model(batch.input());
  return {torch::cross_entropy_loss(scores, batch.target()), scores};
}

}  // namespace

Metrics train_epoch(Model& model, torch::optim::Optimizer& optimizer,
    const lockstep::data::SamplesPointer& images, std::int64_t epoch, const PassOptions& options,
    const lockstep::ProcessGroup& world) {
  const lockstep::DistributedSampler sampler(images->size(), world, {.seed = options.seed});
  const lockstep::LoaderOptions loading{.seed = options.seed,
      .epoch = epoch,
      .workers = options.workers,
      .channels_last = true};  // convolutions on a CPU are fastest so
  model->train();
  Metrics metrics;
  for (auto& batch : lockstep::Loader(images, sampler.epoch(epoch), options.batch_size, loading)) {
    optimizer.zero_grad();
    const auto [loss, scores] = forward(model, batch, options);
    loss.backward();  // returns with the gradients averaged over all ranks
    optimizer.step();
    metrics.add(loss, scores, batch.target());
  }
  metrics.sum_over(world);
  return metrics;
}

Metrics evaluate(Model& model, const lockstep::data::SamplesPointer& images,
    const PassOptions& options, const lockstep::ProcessGroup& world) {
  const torch::NoGradGuard no_gradients;
  // Without padding no image counts twice; ranks may then differ by one.
  const lockstep::DistributedSampler sampler(
      images->size(), world, {.shuffle = false, .padding = false});
  model->eval();
  Metrics metrics;
  const lockstep::LoaderOptions loading{.workers = options.workers, .channels_last = true};
  for (auto& batch : lockstep::Loader(images, sampler.epoch(0), options.batch_size, loading)) {
    const auto [loss, scores] = forward(model, batch, options);
    metrics.add(loss, scores, batch.target());
  }
  metrics.sum_over(world);
  return metrics;
}
