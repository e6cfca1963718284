// Every way of spreading a model gives what the model alone gives: losses, output, gradients and
// parameters after 5 steps.

#include <gtest/gtest.h>

#include "tests/support/places.h"
#include "ways.h"

#include "lockstep/core/error.h"
#include "lockstep/parallel/schedule/partition.h"

namespace lockstep {
namespace {

using testing::Problem;
using testing::Trained;

constexpr ScheduleKind kOneStageAPlace[] = {ScheduleKind::kSequential, ScheduleKind::kGPipe,
    ScheduleKind::k1F1B, ScheduleKind::kZeroBubble};

std::vector<int> halves(const Problem& problem) {
  return partition_by_count(problem.model->layers().size(), 2);
}

void expect_replicated_ways_as(const Problem& problem, const Trained& serial, double tolerance) {
  {
    SCOPED_TRACE("dp");
    testing::expect_same(testing::train_data_parallel(problem, 2), serial, tolerance);
  }
  for (const std::int64_t bucket_bytes : {std::int64_t{1} << 10, std::int64_t{25} << 20}) {
    SCOPED_TRACE(concat("ddp, buckets of ", bucket_bytes));
    testing::expect_same(testing::train_distributed(problem, 2, bucket_bytes), serial, tolerance);
  }
}

void expect_staged_ways_as(
    const Problem& problem, const Trained& serial, int chunks, double tolerance) {
  const std::vector<int> balance = halves(problem);
  for (const ScheduleKind kind : kOneStageAPlace) {
    SCOPED_TRACE(concat(name_of(kind), ", ", chunks, " chunks"));
    const auto options = PipelineOptions().chunks(chunks).schedule(kind);
    testing::expect_same(testing::train_pipeline(problem, balance, 2, options), serial, tolerance);
    testing::expect_same(testing::train_stages(problem, balance, 2, 1, options), serial, tolerance);
  }
}

void expect_compositions_as(
    const Problem& problem, const Trained& serial, int chunks, double tolerance) {
  const std::vector<int> balance = halves(problem);
  for (const ScheduleKind kind : {ScheduleKind::kSequential, ScheduleKind::k1F1B}) {
    SCOPED_TRACE(concat("replicas of ", name_of(kind)));
    const auto options = PipelineOptions().chunks(chunks).schedule(kind);
    testing::expect_same(testing::train_stages(problem, balance, 2, 2, options), serial, tolerance);
    testing::expect_same(
        testing::train_replicated_pipelines(problem, balance, 2, 2, options), serial, tolerance);
  }
}

void expect_all_ways_as_serially(const Problem& problem, double tolerance) {
  const Trained serial = testing::train_serially(problem);
  expect_replicated_ways_as(problem, serial, tolerance);
  expect_staged_ways_as(problem, serial, 3, tolerance);
  expect_compositions_as(problem, serial, 2, tolerance);
}

TEST(Transparency, ToyInDouble) {
  expect_all_ways_as_serially(testing::make_problem("toy", {8, 10}, torch::kDouble), 1e-10);
}

TEST(Transparency, ToyInFloat) {
  expect_all_ways_as_serially(testing::make_problem("toy", {8, 10}, torch::kFloat), 1e-5);
}

TEST(Transparency, MnistSmallInDouble) {
  expect_all_ways_as_serially(
      testing::make_problem("mnist-small", {8, 1, 28, 28}, torch::kDouble), 1e-10);
}

TEST(Transparency, MnistSmallInFloat) {
  expect_all_ways_as_serially(
      testing::make_problem("mnist-small", {8, 1, 28, 28}, torch::kFloat), 1e-5);
}

// Batch norm sees a whole batch where the batch is not divided: then everything is equal.
TEST(Transparency, ResNetWhereTheBatchIsWhole) {
  const Problem problem = testing::make_problem("resnet18-cifar", {4, 3, 8, 8}, torch::kDouble);
  const Trained serial = testing::train_serially(problem);
  const std::vector<int> balance = halves(problem);
  const auto options = PipelineOptions().chunks(1).schedule(ScheduleKind::kSequential);
  testing::expect_same(testing::train_pipeline(problem, balance, 2, options), serial, 1e-10);
  testing::expect_same(testing::train_stages(problem, balance, 2, 1, options), serial, 1e-10);
}

// With batch norm over all ranks, replicas on shares of a batch are one model on the whole.
TEST(Transparency, ResNetInReplicasWithSynchronisedBatchNorm) {
  const Problem problem = testing::make_problem("resnet18-cifar", {4, 3, 8, 8}, torch::kDouble);
  const Trained serial = testing::train_serially(problem);
  // On devices the serial batch norm adds up in another order, which five steps amplify.
  const double tolerance = testing::on_devices() ? 1e-8 : 1e-10;
  testing::expect_same(testing::train_distributed(problem, 2, 1 << 20, true), serial, tolerance);
}

// A pipeline normalises each micro-batch by itself, as PyTorch's do: so does a serial model that
// adds up the gradients of micro-batches.
TEST(Transparency, ResNetByMicroBatches) {
  const Problem problem = testing::make_problem("resnet18-cifar", {6, 3, 8, 8}, torch::kDouble);
  const Trained serial = testing::train_serially(problem, 3);
  const std::vector<int> balance = halves(problem);
  for (const ScheduleKind kind :
      {ScheduleKind::kGPipe, ScheduleKind::k1F1B, ScheduleKind::kZeroBubble}) {
    for (const Checkpoint checkpoint : {Checkpoint::kNever, Checkpoint::kAlways}) {
      SCOPED_TRACE(concat(name_of(kind), ", checkpoint ", name_of(checkpoint)));
      const auto options = PipelineOptions().chunks(3).schedule(kind).checkpoint(checkpoint);
      testing::expect_same(testing::train_pipeline(problem, balance, 2, options), serial, 1e-10);
    }
  }
}

}  // namespace
}  // namespace lockstep
