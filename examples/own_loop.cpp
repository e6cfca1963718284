// A training loop of one's own with what `lockstep train` has around its loop: a learning rate that
// rises and falls, averaged weights, metrics for `lockstep report` and TensorBoard, and snapshots
// from which it goes on within an epoch. SIGTERM, Ctrl-C and SIGUSR1 end it with a snapshot and
// code 75; started again, it has the weights of a run that was never stopped, bit for bit.
//
//     lockstep run --nproc-per-node 2 ./own_loop own-run
//     lockstep report own-run

#include <iostream>
#include <lockstep/lockstep.h>
#include <optional>
#include <string>

#include <torch/torch.h>

namespace {

constexpr std::int64_t kEpochs = 2, kBatch = 64, kWarmup = 100, kLogInterval = 50;

torch::nn::Sequential make_net() {
  using namespace torch::nn;
  return Sequential(Flatten(), Linear(784, 128), ReLU(), Dropout(0.1), Linear(128, 10));
}

double accuracy(torch::nn::Sequential& net, const lockstep::data::InMemoryImages& images,
    const lockstep::ProcessGroup& world) {
  const torch::NoGradGuard no_gradients;
  net->eval();
  auto hits = torch::zeros({1}, torch::kDouble);
  const lockstep::DistributedSampler sampler(
      images.size(), world, {.shuffle = false, .padding = false});
  for (auto& batch : lockstep::Loader(images, sampler.epoch(0), 512))
    hits += net->forward(batch.input()).argmax(1).eq(batch.target()).sum();
  world.all_reduce(hits).wait();
  net->train();
  return hits.item<double>() / static_cast<double>(images.size());
}

}  // namespace

int train(int count, char** values) {
  const std::string run = count > 1 ? values[1] : "own-run";
  lockstep::check(!run.starts_with("-"), "there are no flags, but a folder: own_loop [RUN]");
  auto world = lockstep::init_process_group();
  const bool speaks = world.rank() == 0;
  const auto train_set = lockstep::data::fashion_mnist();
  const auto test_set =
      lockstep::data::fashion_mnist(lockstep::data::kFashionMnistDirectory, false);

  torch::manual_seed(1);
  auto net = make_net();
  torch::optim::SGD optimizer(net->parameters(), torch::optim::SGDOptions(0.1).momentum(0.9));
  lockstep::ModelEma ema(*net, {.decay = 0.99, .warmup = true});
  lockstep::Snapshot snapshot(run, world);
  auto position = snapshot.load(*net, optimizer, nullptr, &ema);  // {0, 0} the first time
  std::int64_t &epoch = position.epoch, &step = position.step;
  std::int64_t samples = snapshot.samples();  // of this epoch that all ranks have trained on
  lockstep::DistributedDataParallel model(net, world);

  const lockstep::DistributedSampler sampler(train_set.size(), world);
  const auto steps = kEpochs * lockstep::Loader(train_set, sampler.epoch(0), kBatch).size();
  const lockstep::LrSchedule schedule{.kind = lockstep::LrScheduleKind::kCosine,
      .lr = 0.1,
      .warmup = kWarmup,
      .length = steps - kWarmup};
  std::optional<lockstep::MetricsWriter> metrics;
  if (speaks)
    metrics.emplace(run, lockstep::MetricsWriterOptions{.tensorboard = true, .steps = step});
  const auto end = [&](const char* stopped_by, lockstep::ExitCode code) {
    snapshot.wait();
    if (metrics) {
      metrics->flush();
      metrics->finish({.model = "own-net",
          .data = "fashion-mnist",
          .parallel = "ddp",
          .world_size = world.size(),
          .batch_size = kBatch,
          .precision = "32",
          .epochs = {},
          .steps = step,
          .stopped_by = stopped_by,
          .parameters_hash = {},
          .exit = static_cast<int>(code)});
    }
    return static_cast<int>(code);
  };

  lockstep::Stopwatch watch;
  const auto record = [&](const torch::Tensor& loss, double lr) {
    world.all_reduce(loss, lockstep::ReduceOp::kMean).wait();
    const double seconds = watch.restart() / kLogInterval;
    if (!metrics) return;
    metrics->append({.epoch = epoch + 1,
        .step = step,
        .split = "train",
        .scores = {.loss = loss.item<double>()},
        .lr = lr,
        .samples_per_s = static_cast<double>(kBatch * world.size()) / seconds,
        .step_ms = 1000 * seconds});
  };

  auto progress = lockstep::ProgressPage::from_environment();  // of a launcher of ours
  lockstep::GracefulStop stop(world);
  for (; epoch < kEpochs; ++epoch, samples = 0) {
    for (auto& batch : lockstep::Loader(train_set, sampler.epoch(epoch, samples), kBatch)) {
      const double lr = lockstep::lr_at(schedule, step);
      lockstep::set_lr(optimizer, lr);
      optimizer.zero_grad();
      auto loss = torch::cross_entropy_loss(model(batch.input()), batch.target());
      loss.backward();
      optimizer.step();
      ema.update();
      ++step;
      samples += batch.target().size(0) * world.size();
      if (progress) progress->report(step);
      if (step % kLogInterval == 0) record(loss.detach(), lr);
      if (stop.requested()) {
        if (speaks)
          std::cout << "stopped after " << samples << " samples of the epoch" << std::endl;
        snapshot.save(
            *net, optimizer, {.epoch = epoch, .step = step, .samples = samples, .ema = &ema});
        return end("signal", lockstep::ExitCode::kStopped);
      }
    }
    lockstep::Scores plain, averaged;
    plain.top1 = accuracy(net, test_set, world);
    ema.with_averages([&] { averaged.top1 = accuracy(net, test_set, world); });
    if (metrics) {
      metrics->append({.epoch = epoch + 1, .step = step, .split = "val", .scores = plain});
      metrics->append({.epoch = epoch + 1, .step = step, .split = "val-ema", .scores = averaged});
      std::cout << "epoch " << epoch + 1 << ": accuracy " << *plain.top1 << ", of the averages "
                << *averaged.top1 << std::endl;
    }
    snapshot.save(*net, optimizer, {.epoch = epoch + 1, .step = step, .ema = &ema});
  }
  if (speaks) lockstep::nn::save_weights(*net, run + "/model.safetensors");
  ema.with_averages([&] {
    if (speaks) lockstep::nn::save_weights(*net, run + "/model-ema.safetensors");
  });
  return end("epochs", lockstep::ExitCode::kDone);
}

int main(int argc, char** argv) { return lockstep::run_program("own_loop", train, argc, argv); }
