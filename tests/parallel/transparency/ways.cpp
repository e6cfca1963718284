#include "ways.h"

#include <gtest/gtest.h>
#include <mutex>

#include "tests/comm/group_factory.h"
#include "tests/support/places.h"
#include <ATen/ops/cross_entropy_loss.h>
#include <torch/optim/sgd.h>

#include "lockstep/comm/process_group.h"
#include "lockstep/core/error.h"
#include "lockstep/parallel/data_parallel.h"
#include "lockstep/parallel/distributed_data_parallel.h"
#include "lockstep/parallel/pipeline/pipeline.h"
#include "lockstep/parallel/pipeline/pipeline_stage.h"

namespace lockstep::testing {
namespace {

torch::Tensor loss_of(const torch::Tensor& scores, const torch::Tensor& labels) {
  return at::cross_entropy_loss(scores, labels);
}

// On the calling rank's device.
nn::Model copy_of(const nn::Model& model) {
  nn::Model copy(std::dynamic_pointer_cast<nn::ModelImpl>(model->clone()));
  bring_here(*copy);
  return copy;
}

torch::optim::SGD make_optimizer(const std::vector<torch::Tensor>& parameters) {
  return torch::optim::SGD(parameters, torch::optim::SGDOptions(0.05).momentum(0.9));
}

// Adds what a model holds; of a model in stages each rank adds its own.
void add_state(
    Trained& trained, const nn::Model& model, const std::vector<torch::Tensor>& parameters) {
  for (const auto& entry : model->named_parameters()) {
    for (const torch::Tensor& own : parameters) {
      if (!own.is_same(entry.value())) continue;
      trained.parameters[entry.key()] = own.detach().clone();
      trained.gradients[entry.key()] = own.grad().defined() ? own.grad().clone() : own.grad();
    }
  }
}

torch::Tensor evaluated(nn::Model model, const torch::Tensor& images) {
  const torch::NoGradGuard no_grad;
  model->eval();
  return model(images);
}

void expect_close(const torch::Tensor& ours, const torch::Tensor& serial, double tolerance,
    const std::string& what) {
  ASSERT_EQ(ours.defined(), serial.defined()) << what;
  if (!serial.defined()) return;
  const torch::Tensor expected = serial.cpu();
  const double scale = std::max(1e-2, expected.abs().max().item<double>());
  EXPECT_LE((ours.cpu() - expected).abs().max().item<double>() / scale, tolerance) << what;
}

torch::Tensor share(const torch::Tensor& tensor, int shares, int index) {
  return here(tensor.tensor_split(shares)[static_cast<std::size_t>(index)]);
}

// The mean over the batch from the means over equal shares.
double mean_over(const ProcessGroup& group, const torch::Tensor& loss) {
  const torch::Tensor mean = loss.detach().to(torch::kDouble).reshape({1}).clone();
  group.all_reduce(mean, ReduceOp::kMean).wait();
  return mean.item<double>();
}

}  // namespace

Problem make_problem(const std::string& model, const std::vector<std::int64_t>& images,
    torch::ScalarType type, std::uint64_t seed) {
  torch::manual_seed(seed);
  Problem problem;
  problem.model = nn::make_model(model, 10);
  problem.model->to(type);
  problem.images = torch::randn(images, type);
  problem.labels = torch::randint(0, 10, {images.front()}, torch::kLong);
  return problem;
}

Trained train_serially(const Problem& problem, int micro_batches) {
  nn::Model model = copy_of(problem.model);
  auto optimizer = make_optimizer(model->parameters());
  Trained trained;
  const auto count = static_cast<double>(problem.images.size(0));
  for (int step = 0; step < problem.steps; ++step) {
    optimizer.zero_grad();
    double total = 0;
    for (int part = 0; part < micro_batches; ++part) {
      const auto images = share(problem.images, micro_batches, part);
      const auto weight = static_cast<double>(images.size(0)) / count;
      const auto loss = loss_of(model(images), share(problem.labels, micro_batches, part)) * weight;
      loss.backward();
      total += loss.item<double>();
    }
    optimizer.step();
    trained.losses.push_back(total);
  }
  add_state(trained, model, model->parameters());
  trained.output = evaluated(model, problem.images);
  return trained;
}

Trained train_data_parallel(const Problem& problem, int places) {
  const nn::Model model = copy_of(problem.model);
  DataParallel<nn::Model> parallel(model, testing::places(places));
  auto optimizer = make_optimizer(model->parameters());
  Trained trained;
  for (int step = 0; step < problem.steps; ++step) {
    optimizer.zero_grad();
    const auto loss = loss_of(parallel(problem.images), problem.labels);
    loss.backward();
    optimizer.step();
    trained.losses.push_back(loss.item<double>());
  }
  add_state(trained, model, model->parameters());
  trained.output = evaluated(model, problem.images);
  return trained;
}

Trained train_distributed(
    const Problem& problem, int ranks, std::int64_t bucket_bytes, bool sync_batch_norm) {
  Trained trained;
  testing::run_ranks(ranks, [&](const ProcessGroup& world) {
    const nn::Model model = copy_of(problem.model);
    DistributedDataParallel<nn::Model> parallel(model, world,
        DistributedDataParallelOptions()
            .first_bucket_bytes(bucket_bytes)
            .bucket_bytes(bucket_bytes)
            .sync_batch_norm(sync_batch_norm));
    auto optimizer = make_optimizer(model->parameters());
    for (int step = 0; step < problem.steps; ++step) {
      optimizer.zero_grad();
      const auto loss = loss_of(parallel(share(problem.images, ranks, world.rank())),
          share(problem.labels, ranks, world.rank()));
      loss.backward();
      optimizer.step();
      const double mean = mean_over(world, loss);
      if (world.rank() == 0) trained.losses.push_back(mean);
    }
    if (world.rank() != 0) return;
    add_state(trained, model, model->parameters());
    trained.output = evaluated(model, here(problem.images));
  });
  return trained;
}

Trained train_pipeline(
    const Problem& problem, const std::vector<int>& balance, int places, PipelineOptions options) {
  const nn::Model model = copy_of(problem.model);
  Pipeline pipeline(model->layers(), balance, testing::places(places), options);
  auto optimizer = make_optimizer(pipeline.parameters());
  Trained trained;
  for (int step = 0; step < problem.steps; ++step) {
    optimizer.zero_grad();
    trained.losses.push_back(pipeline.step(problem.images, problem.labels, loss_of).item<double>());
    optimizer.step();
  }
  add_state(trained, model, pipeline.parameters());
  pipeline.train(false);
  const torch::NoGradGuard no_grad;
  trained.output = pipeline(problem.images);
  return trained;
}

Trained train_stages(const Problem& problem, const std::vector<int>& balance, int ranks,
    int replicas, PipelineOptions options) {
  Trained trained;
  std::mutex mutex;
  testing::run_ranks(ranks * replicas, [&](const ProcessGroup& world) {
    const nn::Model model = copy_of(problem.model);
    const PipelineGrid grid = make_pipeline_grid(world, ranks);
    PipelineStage stage(
        model->layers(), balance, grid.stages, options, grid.replicas, testing::this_device());
    auto optimizer = make_optimizer(stage.parameters());
    const int replica = grid.replicas.rank();
    std::vector<double> losses;
    for (int step = 0; step < problem.steps; ++step) {
      optimizer.zero_grad();
      const auto loss = stage.step(share(problem.images, replicas, replica),
          share(problem.labels, replicas, replica), loss_of);
      optimizer.step();
      losses.push_back(mean_over(grid.replicas, loss));
    }
    stage.train(false);
    const auto output = stage(here(problem.images));
    const std::lock_guard lock(mutex);
    if (replica == 0) add_state(trained, model, stage.parameters());
    if (world.rank() == 0) trained.losses = losses, trained.output = output;
  });
  return trained;
}

Trained train_replicated_pipelines(const Problem& problem, const std::vector<int>& balance,
    int places, int replicas, PipelineOptions options) {
  Trained trained;
  const auto all = testing::places(places * replicas);
  testing::run_ranks(replicas, [&](const ProcessGroup& world) {
    nn::Model model = copy_of(problem.model);
    const auto first = all.begin() + world.rank() * places;
    const std::vector<Place> own(first, first + places);
    const ProcessGroup group = carrying(world, own);
    Pipeline pipeline(model->layers(), balance, own, options, group);
    auto optimizer = make_optimizer(pipeline.parameters());
    for (int step = 0; step < problem.steps; ++step) {
      optimizer.zero_grad();
      const auto loss = pipeline.step(share(problem.images, replicas, world.rank()),
          share(problem.labels, replicas, world.rank()), loss_of);
      optimizer.step();
      const double mean = mean_over(group, loss);
      if (world.rank() == 0) trained.losses.push_back(mean);
    }
    if (world.rank() != 0) return;
    add_state(trained, model, pipeline.parameters());
    bring_here(*model);
    trained.output = evaluated(model, here(problem.images));
  });
  return trained;
}

void expect_same(const Trained& ours, const Trained& serial, double tolerance) {
  ASSERT_EQ(ours.losses.size(), serial.losses.size());
  for (std::size_t step = 0; step < serial.losses.size(); ++step) {
    EXPECT_NEAR(ours.losses[step], serial.losses[step], tolerance * std::abs(serial.losses[step]))
        << "loss of step " << step;
  }
  expect_close(ours.output, serial.output, tolerance, "output");
  ASSERT_EQ(ours.parameters.size(), serial.parameters.size());
  for (const auto& [name, parameter] : serial.parameters) {
    ASSERT_EQ(ours.parameters.count(name), 1U) << name;
    expect_close(ours.parameters.at(name), parameter, tolerance, name);
    expect_close(
        ours.gradients.at(name), serial.gradients.at(name), tolerance, "gradient of " + name);
  }
}

}  // namespace lockstep::testing
