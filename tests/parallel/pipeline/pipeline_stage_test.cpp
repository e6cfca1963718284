// Pipelines whose stages are ranks: their errors, training in processes (in threads, RandomModules
// have every schedule and shape), and gradients that accumulate over steps and meet once, at the
// last.

#include "lockstep/parallel/pipeline/pipeline_stage.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "serial_reference.h"
#include "tests/comm/group_factory.h"
#include "tests/support/message_of.h"
#include "tests/support/places.h"
#include "tests/support/shared_flag.h"
#include <torch/optim/sgd.h>

#include "lockstep/comm/process_group.h"
#include "lockstep/core/error.h"
#include "lockstep/parallel/pipeline/layers.h"
#include "lockstep/parallel/pipeline/pipeline.h"

namespace lockstep {
namespace {

using ::testing::HasSubstr;
using testing::make_problem;
using testing::Problem;
using testing::run_group;

TEST(PipelineStage, P9SkipsPassFromRankToRank) {
  testing::run_ranks(3, [](const ProcessGroup& world) {
    torch::nn::Linear first(2, 2), last(2, 2);
    const torch::NoGradGuard no_grad;
    first->weight.fill_(0.5), first->bias.fill_(0.1), last->weight.fill_(0.25), last->bias.zero_();
    const torch::AutoGradMode grad(true);
    torch::nn::Sequential net(first, Stash("skip"), torch::nn::Linear(2, 2), Pop("skip"), last);
    for (auto& parameter : net->at<torch::nn::LinearImpl>(2).parameters())
      parameter.detach().zero_();
    PipelineStage stage(layers_of(net), {2, 1, 2}, world, PipelineOptions().chunks(2),
        ProcessGroup(), testing::this_device());
    const auto sum = [](const torch::Tensor& output, const torch::Tensor&) {
      return output.mean();
    };
    stage.step(torch::ones({4, 2}), torch::ones({4, 2}), sum);
    // The middle layer is zero, so all that reaches the first one came by the skip.
    if (world.rank() == 0) {
      EXPECT_TRUE(torch::allclose(first->bias.grad().cpu(), torch::full({2}, 0.25).cpu()));
    }
  });
}

TEST(PipelineStage, AStageThatFailsEndsAllRanks) {
  std::vector<std::string> errors(2);
  EXPECT_THROW(
      testing::run_ranks(2,
          [&](const ProcessGroup& world) {
            const auto net = testing::make_chain({3, 4, 2});
            PipelineStage stage(layers_of(net), {1, 2}, world);
            const auto failing = [](const torch::Tensor&, const torch::Tensor&) -> torch::Tensor {
              throw InvalidArgument("the loss fails");
            };
            try {
              stage.step(torch::ones({4, 3}, torch::kDouble), torch::ones({4, 2}, torch::kDouble),
                  failing);
            } catch (const std::exception& error) {
              errors[static_cast<std::size_t>(world.rank())] = error.what();
              throw;
            }
          }),
      Error);
  EXPECT_THAT(errors[1], HasSubstr("the loss fails"));
  EXPECT_THAT(errors[0], HasSubstr(testing::as_heard("rank 1 failed: the loss fails")));
}

std::string refusal_on_ranks(int ranks, const std::function<void(const ProcessGroup&)>& body) {
  return testing::message_of<InvalidArgument>([&] { testing::run_ranks(ranks, body); });
}

TEST(PipelineStage, RanksThatDifferAreToldSo) {
  const auto refusal = [](const std::vector<int>& other_balance, ScheduleKind other_kind) {
    return refusal_on_ranks(2, [&](const ProcessGroup& world) {
      const bool is_other = world.rank() == 1;
      const PipelineStage stage(layers_of(testing::make_chain({3, 4, 2})),
          is_other ? other_balance : std::vector<int>{1, 2}, world,
          PipelineOptions().schedule(is_other ? other_kind : ScheduleKind::kGPipe));
    });
  };
  EXPECT_THAT(refusal({2, 1}, ScheduleKind::kGPipe), HasSubstr("stage 0"));
  EXPECT_THAT(refusal({1, 2}, ScheduleKind::k1F1B), HasSubstr("schedule gpipe"));
}

TEST(PipelineStage, RanksThatDoNotComeOutEvenAreRefused) {
  EXPECT_THAT(refusal_on_ranks(3, [](const ProcessGroup& world) { make_pipeline_grid(world, 2); }),
      HasSubstr("3 ranks cannot be divided into pipelines of 2"));
}

constexpr int kReplicas = 2;

// The batch is that of all replicas and parts together.
Problem whole_problem() { return testing::make_problem({5, 7, 6, 3}, 24); }

torch::nn::Sequential with_serial_gradients(const Problem& problem) {
  auto serial = problem.serial;
  testing::mean_loss(serial->forward(problem.input), problem.target).backward();
  return serial;
}

torch::Tensor half_loss(const torch::Tensor& output, const torch::Tensor& target) {
  return testing::mean_loss(output, target) / 2;
}

// A replica's share in two parts; what the first leaves must still be its own.
template <typename AnyPipeline>
void accumulate(AnyPipeline& pipeline, const Problem& problem, const ProcessGroup& replicas) {
  const auto inputs = testing::here(problem.input).chunk(2 * kReplicas),
             targets = testing::here(problem.target).chunk(2 * kReplicas);
  const auto first = 2 * static_cast<std::size_t>(replicas.rank());
  {
    const auto accumulation = pipeline.no_sync();
    pipeline.step(inputs[first], targets[first], half_loss);
  }
  const torch::Tensor own = pipeline.parameters().front().grad().clone();
  const torch::Tensor others = torch::empty({kReplicas * own.numel()}, own.options());
  replicas.all_gather(others, own.flatten()).wait();
  const auto each = others.chunk(kReplicas);
  EXPECT_FALSE(each[0].allclose(each[1])) << "the first part was averaged over the replicas";
  pipeline.step(inputs[first + 1], targets[first + 1], half_loss);
}

TEST(PipelineAccumulation, OverPlacesGivesTheGradientsOfAllPartsTogether) {
  const Problem problem = whole_problem();
  const auto serial = with_serial_gradients(problem);
  testing::run_ranks(kReplicas, [&](const ProcessGroup& replicas) {
    const auto net = testing::copy_of(problem.net);
    const auto places = testing::places(2);
    const ProcessGroup group = testing::carrying(replicas, places);
    Pipeline pipeline(layers_of(net), {3, 2}, places, PipelineOptions().chunks(3), group);
    accumulate(pipeline, problem, group);
    testing::expect_same_gradients(*net, *serial);
  });
}

TEST(PipelineAccumulation, OverRanksGivesTheGradientsOfAllPartsTogether) {
  const Problem problem = whole_problem();
  const auto serial = with_serial_gradients(problem);
  testing::run_ranks(2 * kReplicas, [&](const ProcessGroup& world) {
    const auto net = testing::copy_of(problem.net);
    const auto grid = make_pipeline_grid(world, 2);
    PipelineStage stage(layers_of(net), {3, 2}, grid.stages, PipelineOptions().chunks(3),
        grid.replicas, testing::this_device());
    accumulate(stage, problem, grid.replicas);
    testing::expect_gradients_of(stage.layers(), *serial);
  });
}

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

TEST_P(ProcessPipelines, TrainAsTheSerialModel) {
  struct Shape {
    int processes, ranks;  ///< `ranks` of each replica
    std::vector<int> balance;
    ScheduleKind kind;
  };
  const Shape shapes[] = {{3, 3, {2, 2, 3}, ScheduleKind::kSequential},
      {3, 3, {2, 2, 3}, ScheduleKind::kGPipe}, {3, 3, {2, 2, 3}, ScheduleKind::k1F1B},
      {3, 3, {2, 2, 3}, ScheduleKind::kZeroBubble},
      {2, 2, {2, 2, 2, 1}, ScheduleKind::kInterleaved}, {4, 2, {3, 4}, ScheduleKind::k1F1B}};
  for (const Shape& shape : shapes) {
    run_group(GetParam(), shape.processes, [&](const ProcessGroup& world) {
      train_beside_the_serial_model(
          world, shape.balance, shape.ranks, PipelineOptions().chunks(4).schedule(shape.kind));
    });
  }
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
