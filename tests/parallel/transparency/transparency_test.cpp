// Every way of spreading a model gives what the model alone gives: losses, output, gradients and
// parameters after 5 steps.

#include <functional>
#include <gtest/gtest.h>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "tests/comm/group_factory.h"
#include "tests/parallel/pipeline/serial_reference.h"
#include "tests/support/places.h"
#include <ATen/ops/cross_entropy_loss.h>
#include <torch/optim/sgd.h>

#include "lockstep/comm/process_group.h"
#include "lockstep/core/error.h"
#include "lockstep/nn/models/model.h"
#include "lockstep/parallel/data_parallel.h"
#include "lockstep/parallel/distributed_data_parallel.h"
#include "lockstep/parallel/pipeline/pipeline.h"
#include "lockstep/parallel/pipeline/pipeline_stage.h"
#include "lockstep/parallel/schedule/partition.h"

namespace lockstep {
namespace {

/// A model to train, and what with. The model is not changed.
struct Problem {
  nn::Model model{nullptr};
  torch::Tensor images, labels;
};

/// The results of training, by the names of the model's parameters.
struct Trained {
  std::vector<double> losses;
  torch::Tensor output;  ///< of the images after training, in evaluation mode
  std::map<std::string, torch::Tensor> gradients, parameters;
};

torch::Tensor loss_of(const torch::Tensor& scores, const torch::Tensor& labels) {
  return at::cross_entropy_loss(scores, labels);
}

// On the calling rank's device.
nn::Model copy_of(const nn::Model& model) {
  nn::Model copy(std::dynamic_pointer_cast<nn::ModelImpl>(model->clone()));
  testing::bring_here(*copy);
  return copy;
}

// Makes five steps; `step` makes the gradients and returns the loss.
std::vector<double> losses_of(
    const std::vector<torch::Tensor>& parameters, const std::function<double()>& step) {
  torch::optim::SGD optimizer(parameters, torch::optim::SGDOptions(0.05).momentum(0.9));
  std::vector<double> losses;
  for (int count = 0; count < 5; ++count) {
    optimizer.zero_grad();
    losses.push_back(step());
    optimizer.step();
  }
  return losses;
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

torch::Tensor share(const torch::Tensor& tensor, int shares, int index) {
  return testing::here(tensor.tensor_split(shares)[static_cast<std::size_t>(index)]);
}

// The mean over the batch from the means over equal shares.
double mean_over(const ProcessGroup& group, const torch::Tensor& loss) {
  const torch::Tensor mean = loss.detach().to(torch::kDouble).reshape({1}).clone();
  group.all_reduce(mean, ReduceOp::kMean).wait();
  return mean.item<double>();
}

// Everything follows from the seed.
Problem make_problem(
    const std::string& model, const std::vector<std::int64_t>& images, torch::ScalarType type) {
  torch::manual_seed(1);
  Problem problem;
  problem.model = nn::make_model(model, 10);
  problem.model->to(type);
  problem.images = torch::randn(images, type);
  problem.labels = torch::randint(0, 10, {images.front()}, torch::kLong);
  return problem;
}

// The reference. The gradients of micro-batches, each normalised by its own statistics, add up in
// order before each step.
Trained train_serially(const Problem& problem, int micro_batches = 1) {
  nn::Model model = copy_of(problem.model);
  Trained trained;
  const auto count = static_cast<double>(problem.images.size(0));
  trained.losses = losses_of(model->parameters(), [&] {
    double total = 0;
    for (int part = 0; part < micro_batches; ++part) {
      const auto images = share(problem.images, micro_batches, part);
      const auto weight = static_cast<double>(images.size(0)) / count;
      const auto loss = loss_of(model(images), share(problem.labels, micro_batches, part)) * weight;
      loss.backward();
      total += loss.item<double>();
    }
    return total;
  });
  add_state(trained, model, model->parameters());
  trained.output = evaluated(model, problem.images);
  return trained;
}

Trained train_data_parallel(const Problem& problem, int places) {
  const nn::Model model = copy_of(problem.model);
  DataParallel<nn::Model> parallel(model, testing::places(places));
  Trained trained;
  trained.losses = losses_of(model->parameters(), [&] {
    const auto loss = loss_of(parallel(problem.images), problem.labels);
    loss.backward();
    return loss.item<double>();
  });
  add_state(trained, model, model->parameters());
  trained.output = evaluated(model, problem.images);
  return trained;
}

Trained train_distributed(
    const Problem& problem, int ranks, std::int64_t bucket_bytes, bool sync_batch_norm = false) {
  Trained trained;
  testing::run_ranks(ranks, [&](const ProcessGroup& world) {
    const nn::Model model = copy_of(problem.model);
    DistributedDataParallel<nn::Model> parallel(model, world,
        DistributedDataParallelOptions()
            .first_bucket_bytes(bucket_bytes)
            .bucket_bytes(bucket_bytes)
            .sync_batch_norm(sync_batch_norm));
    const auto losses = losses_of(model->parameters(), [&] {
      const auto loss = loss_of(parallel(share(problem.images, ranks, world.rank())),
          share(problem.labels, ranks, world.rank()));
      loss.backward();
      return mean_over(world, loss);
    });
    if (world.rank() != 0) return;
    trained.losses = losses;
    add_state(trained, model, model->parameters());
    trained.output = evaluated(model, testing::here(problem.images));
  });
  return trained;
}

Trained train_pipeline(const Problem& problem, const std::vector<int>& balance, int places,
    const PipelineOptions& options) {
  const nn::Model model = copy_of(problem.model);
  Pipeline pipeline(model->layers(), balance, testing::places(places), options);
  Trained trained;
  trained.losses = losses_of(pipeline.parameters(),
      [&] { return pipeline.step(problem.images, problem.labels, loss_of).item<double>(); });
  add_state(trained, model, pipeline.parameters());
  pipeline.train(false);
  const torch::NoGradGuard no_grad;
  trained.output = pipeline(problem.images);
  return trained;
}

Trained train_stages(const Problem& problem, const std::vector<int>& balance, int ranks,
    int replicas, const PipelineOptions& options) {
  Trained trained;
  std::mutex mutex;
  testing::run_ranks(ranks * replicas, [&](const ProcessGroup& world) {
    const nn::Model model = copy_of(problem.model);
    const PipelineGrid grid = make_pipeline_grid(world, ranks);
    PipelineStage stage(
        model->layers(), balance, grid.stages, options, grid.replicas, testing::this_device());
    const int replica = grid.replicas.rank();
    const auto losses = losses_of(stage.parameters(), [&] {
      return mean_over(grid.replicas, stage.step(share(problem.images, replicas, replica),
                                          share(problem.labels, replicas, replica), loss_of));
    });
    stage.train(false);
    const auto output = stage(testing::here(problem.images));
    const std::lock_guard lock(mutex);
    if (replica == 0) add_state(trained, model, stage.parameters());
    if (world.rank() == 0) trained.losses = losses, trained.output = output;
  });
  return trained;
}

// Replicas as ranks, each with a pipeline in one process.
Trained train_replicated_pipelines(const Problem& problem, const std::vector<int>& balance,
    int places, int replicas, const PipelineOptions& options) {
  Trained trained;
  const auto all = testing::places(places * replicas);
  testing::run_ranks(replicas, [&](const ProcessGroup& world) {
    nn::Model model = copy_of(problem.model);
    const auto first = all.begin() + world.rank() * places;
    const std::vector<Place> own(first, first + places);
    const ProcessGroup group = testing::carrying(world, own);
    Pipeline pipeline(model->layers(), balance, own, options, group);
    const auto losses = losses_of(pipeline.parameters(), [&] {
      return mean_over(group, pipeline.step(share(problem.images, replicas, world.rank()),
                                  share(problem.labels, replicas, world.rank()), loss_of));
    });
    if (world.rank() != 0) return;
    trained.losses = losses;
    add_state(trained, model, pipeline.parameters());
    testing::bring_here(*model);
    trained.output = evaluated(model, testing::here(problem.images));
  });
  return trained;
}

void expect_same(const Trained& ours, const Trained& serial, double tolerance) {
  const auto expect_near = [&](const torch::Tensor& actual, const torch::Tensor& expected,
                               const std::string& what) {
    testing::expect_close(actual, expected, tolerance, what, /*least_scale=*/1e-2);
  };
  ASSERT_EQ(ours.losses.size(), serial.losses.size());
  for (std::size_t step = 0; step < serial.losses.size(); ++step) {
    EXPECT_NEAR(ours.losses[step], serial.losses[step], tolerance * std::abs(serial.losses[step]))
        << "loss of step " << step;
  }
  expect_near(ours.output, serial.output, "output");
  ASSERT_EQ(ours.parameters.size(), serial.parameters.size());
  for (const auto& [name, parameter] : serial.parameters) {
    ASSERT_EQ(ours.parameters.count(name), 1U) << name;
    expect_near(ours.parameters.at(name), parameter, name);
    expect_near(ours.gradients.at(name), serial.gradients.at(name), "gradient of " + name);
  }
}

constexpr ScheduleKind kOneStageAPlace[] = {ScheduleKind::kSequential, ScheduleKind::kGPipe,
    ScheduleKind::k1F1B, ScheduleKind::kZeroBubble};

std::vector<int> halves(const Problem& problem) {
  return partition_by_count(problem.model->layers().size(), 2);
}

void expect_replicated_ways_as(const Problem& problem, const Trained& serial, double tolerance) {
  {
    SCOPED_TRACE("dp");
    expect_same(train_data_parallel(problem, 2), serial, tolerance);
  }
  for (const std::int64_t bucket_bytes : {std::int64_t{1} << 10, std::int64_t{25} << 20}) {
    SCOPED_TRACE(concat("ddp, buckets of ", bucket_bytes));
    expect_same(train_distributed(problem, 2, bucket_bytes), serial, tolerance);
  }
}

void expect_staged_ways_as(
    const Problem& problem, const Trained& serial, int chunks, double tolerance) {
  const std::vector<int> balance = halves(problem);
  for (const ScheduleKind kind : kOneStageAPlace) {
    SCOPED_TRACE(concat(name_of(kind), ", ", chunks, " chunks"));
    const auto options = PipelineOptions().chunks(chunks).schedule(kind);
    expect_same(train_pipeline(problem, balance, 2, options), serial, tolerance);
    expect_same(train_stages(problem, balance, 2, 1, options), serial, tolerance);
  }
}

void expect_compositions_as(
    const Problem& problem, const Trained& serial, int chunks, double tolerance) {
  const std::vector<int> balance = halves(problem);
  for (const ScheduleKind kind : {ScheduleKind::kSequential, ScheduleKind::k1F1B}) {
    SCOPED_TRACE(concat("replicas of ", name_of(kind)));
    const auto options = PipelineOptions().chunks(chunks).schedule(kind);
    expect_same(train_stages(problem, balance, 2, 2, options), serial, tolerance);
    expect_same(train_replicated_pipelines(problem, balance, 2, 2, options), serial, tolerance);
  }
}

void expect_all_ways_as_serially(const Problem& problem, double tolerance) {
  const Trained serial = train_serially(problem);
  expect_replicated_ways_as(problem, serial, tolerance);
  expect_staged_ways_as(problem, serial, 3, tolerance);
  expect_compositions_as(problem, serial, 2, tolerance);
}

TEST(Transparency, OfToyAndMnistSmall) {
  for (const auto& [type, tolerance] : {std::pair{torch::kDouble, 1e-10}, {torch::kFloat, 1e-5}}) {
    SCOPED_TRACE(c10::toString(type));
    expect_all_ways_as_serially(make_problem("toy", {8, 10}, type), tolerance);
    expect_all_ways_as_serially(make_problem("mnist-small", {8, 1, 28, 28}, type), tolerance);
  }
}

// Batch norm sees a whole batch where the batch is not divided: then everything is equal.
TEST(Transparency, ResNetWhereTheBatchIsWhole) {
  const Problem problem = make_problem("resnet18-cifar", {4, 3, 8, 8}, torch::kDouble);
  const Trained serial = train_serially(problem);
  const std::vector<int> balance = halves(problem);
  const auto options = PipelineOptions().chunks(1).schedule(ScheduleKind::kSequential);
  expect_same(train_pipeline(problem, balance, 2, options), serial, 1e-10);
  expect_same(train_stages(problem, balance, 2, 1, options), serial, 1e-10);
}

// With batch norm over all ranks, replicas on shares of a batch are one model on the whole.
TEST(Transparency, ResNetInReplicasWithSynchronisedBatchNorm) {
  const Problem problem = make_problem("resnet18-cifar", {4, 3, 8, 8}, torch::kDouble);
  const Trained serial = train_serially(problem);
  // On devices the serial batch norm adds up in another order, which five steps amplify.
  const double tolerance = testing::on_devices() ? 1e-8 : 1e-10;
  expect_same(train_distributed(problem, 2, 1 << 20, true), serial, tolerance);
}

// A pipeline normalises each micro-batch by itself, as PyTorch's do: so does a serial model that
// adds up the gradients of micro-batches.
TEST(Transparency, ResNetByMicroBatches) {
  const Problem problem = make_problem("resnet18-cifar", {6, 3, 8, 8}, torch::kDouble);
  const Trained serial = train_serially(problem, 3);
  const std::vector<int> balance = halves(problem);
  for (const ScheduleKind kind :
      {ScheduleKind::kGPipe, ScheduleKind::k1F1B, ScheduleKind::kZeroBubble}) {
    for (const Checkpoint checkpoint : {Checkpoint::kNever, Checkpoint::kAlways}) {
      SCOPED_TRACE(concat(name_of(kind), ", checkpoint ", name_of(checkpoint)));
      const auto options = PipelineOptions().chunks(3).schedule(kind).checkpoint(checkpoint);
      expect_same(train_pipeline(problem, balance, 2, options), serial, 1e-10);
    }
  }
}

}  // namespace
}  // namespace lockstep
