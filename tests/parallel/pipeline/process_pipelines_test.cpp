// Pipelines whose stages are processes: each backend that connects processes must carry them.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "../../comm/group_factory.h"
#include "serial_reference.h"
#include "tests/support/message_of.h"
#include "tests/support/places.h"
#include "tests/support/shared_flag.h"
#include <torch/optim/sgd.h>

#include "lockstep/core/error.h"
#include "lockstep/parallel/pipeline/pipeline_stage.h"

namespace lockstep {
namespace {

using ::testing::HasSubstr;
using testing::make_problem;
using testing::Problem;
using testing::run_group;

class ProcessPipelines : public ::testing::TestWithParam<const char*> {};

INSTANTIATE_TEST_SUITE_P(Backends, ProcessPipelines, ::testing::Values("shm", "gloo", "hosts_0010"),
    [](const ::testing::TestParamInfo<const char*>& backend) {
      return std::string(backend.param);
    });

void train_beside_the_serial_model(const ProcessGroup& world, const std::vector<int>& balance,
    int ranks, const PipelineOptions& options) {
  const int replicas = world.size() / ranks;
  Problem problem = make_problem({5, 7, 6, 8, 3}, 6 * replicas);
  const auto grid = make_pipeline_grid(world, ranks);
  PipelineStage stage(layers_of(problem.net), balance, grid.stages, options, grid.replicas);
  torch::optim::SGD ours(stage.parameters(), 0.1), reference(problem.serial->parameters(), 0.1);
  for (int step = 0; step < 3; ++step) {
    ours.zero_grad(), reference.zero_grad();
    stage.step(testing::share_here(problem.input, grid.replicas),
        testing::share_here(problem.target, grid.replicas), testing::mean_loss);
    testing::mean_loss(problem.serial->forward(problem.input), problem.target).backward();
    ours.step(), reference.step();
  }
  testing::expect_close(
      stage(problem.input), problem.serial->forward(problem.input), 1e-10, "output");
}

TEST_P(ProcessPipelines, TrainAsTheSerialModelBySchedule) {
  for (const auto kind : {ScheduleKind::kSequential, ScheduleKind::kGPipe, ScheduleKind::k1F1B,
           ScheduleKind::kZeroBubble}) {
    run_group(GetParam(), 3, [&](const ProcessGroup& world) {
      train_beside_the_serial_model(
          world, {2, 2, 3}, 3, PipelineOptions().chunks(4).schedule(kind));
    });
  }
}

TEST_P(ProcessPipelines, InterleavedOnesTrainAsTheSerialModel) {
  run_group(GetParam(), 2, [&](const ProcessGroup& world) {
    train_beside_the_serial_model(
        world, {2, 2, 2, 1}, 2, PipelineOptions().chunks(4).schedule(ScheduleKind::kInterleaved));
  });
}

TEST_P(ProcessPipelines, ReplicasOfThemTrainAsTheSerialModel) {
  run_group(GetParam(), 4, [&](const ProcessGroup& world) {
    train_beside_the_serial_model(world, {3, 4}, 2, PipelineOptions().chunks(3));
  });
}

// The rank that fails lives on until the other has noticed; the group's limit is a minute.
TEST_P(ProcessPipelines, AStageThatFailsEndsTheOther) {
  testing::SharedFlag noticed;
  run_group(GetParam(), 2, [&](const ProcessGroup& world) {
    Problem problem = make_problem({5, 4, 3}, 6);
    PipelineStage stage(layers_of(problem.net), {1, 2}, world);
    const auto failing = [](const torch::Tensor&, const torch::Tensor&) -> torch::Tensor {
      throw std::runtime_error("no loss today");
    };
    const auto step = [&] { stage.step(problem.input, problem.target, failing); };
    if (world.rank() == 1) {
      EXPECT_THAT(testing::message_of<std::runtime_error>(step), HasSubstr("no loss today"));
      return noticed.wait();
    }
    EXPECT_THROW(step(), CommError);
    noticed.raise();
  });
}

}  // namespace
}  // namespace lockstep
