// Pipelines whose stages are threads of one process. The two faces of a pipeline, Pipeline and
// PipelineStage, do the same with an input, a target and a loss.

#include "lockstep/parallel/pipeline/pipeline.h"

#include <functional>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <string>

#include "serial_reference.h"
#include "tests/comm/group_factory.h"
#include "tests/support/message_of.h"
#include "tests/support/places.h"
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/container/functional.h>
#include <torch/optim/sgd.h>

#include "lockstep/comm/process_group.h"
#include "lockstep/core/error.h"
#include "lockstep/parallel/pipeline/pipeline_stage.h"

namespace lockstep {
namespace {

using ::testing::AllOf;
using testing::expect_close;
using ::testing::HasSubstr;
using testing::make_problem;

constexpr ScheduleKind kPlain[] = {ScheduleKind::kSequential, ScheduleKind::kGPipe,
    ScheduleKind::k1F1B, ScheduleKind::kZeroBubble};

// With the mean, RandomModules train as serially by all schedules, and Transparency compares
// losses, too (P1). Here chunks do not divide the batch.
TEST(Pipeline, P2TrainsOnSumsAsTheSerialModel) {
  for (const auto kind : kPlain) {
    auto problem = make_problem({5, 7, 6, 8, 3}, 7);
    Pipeline pipeline(layers_of(problem.net), {3, 4}, testing::places(2),
        PipelineOptions().schedule(kind).chunks(3).reduction(LossReduction::kSum));
    torch::optim::SGD ours(pipeline.parameters(), 0.1),
        reference(problem.serial->parameters(), 0.1);
    for (int step = 0; step < 5; ++step) {
      ours.zero_grad(), reference.zero_grad();
      pipeline.step(problem.input, problem.target, testing::sum_loss);
      testing::sum_loss(problem.serial->forward(problem.input), problem.target).backward();
      ours.step(), reference.step();
    }
    testing::expect_same_parameters(*problem.net, *problem.serial);
  }
}

TEST(Pipeline, IsCalledLikeAModule) {
  for (const auto kind : kPlain) {
    auto problem = make_problem({3, 4, 5, 2}, 6);
    Pipeline pipeline(layers_of(problem.net), {2, 3}, testing::places(2),
        PipelineOptions().chunks(4).schedule(kind));
    const auto input = problem.input.clone().requires_grad_();
    const auto serial_input = problem.input.clone().requires_grad_();
    const auto expected = problem.serial->forward(serial_input);
    const auto output = pipeline(input);
    expect_close(output, expected, 1e-12, "output");
    testing::loss_there(output, problem.target).backward();
    testing::mean_loss(expected, problem.target).backward();
    testing::expect_same_gradients(*problem.net, *problem.serial);
    expect_close(input.grad(), serial_input.grad(), 1e-12, "input");
  }
}

// H6: evaluation leaves training undisturbed.
TEST(Pipeline, H6EvaluationBetweenSteps) {
  auto problem = make_problem({3, 4, 2}, 5);
  Pipeline pipeline(layers_of(problem.net), {1, 2}, testing::places(2));
  pipeline.step(problem.input, problem.target, testing::mean_loss);
  {
    const torch::NoGradGuard no_grad;
    const auto output = pipeline(problem.input);
    EXPECT_FALSE(output.requires_grad());
    expect_close(output, problem.serial->forward(problem.input), 1e-12, "output");
  }
  pipeline.step(problem.input, problem.target, testing::mean_loss);
  for (int pass = 0; pass < 2; ++pass)
    testing::mean_loss(problem.serial->forward(problem.input), problem.target).backward();
  testing::expect_same_gradients(*problem.net, *problem.serial);
}

TEST(Pipeline, BackwardOfAnOlderCallIsRefused) {
  auto problem = make_problem({3, 4, 2}, 5);
  Pipeline pipeline(layers_of(problem.net), {1, 2}, testing::places(2));
  const auto old = pipeline(problem.input);
  pipeline(problem.input);
  EXPECT_THROW(old.sum().backward(), Error);
}

TEST(Pipeline, FrozenFirstStageIsLegal) {
  auto problem = make_problem({3, 4, 2}, 5);
  problem.net->at<torch::nn::LinearImpl>(0).weight.set_requires_grad(false);
  problem.net->at<torch::nn::LinearImpl>(0).bias.set_requires_grad(false);
  for (const auto kind : kPlain) {
    problem.net->zero_grad(), problem.serial->zero_grad();
    Pipeline pipeline(
        layers_of(problem.net), {1, 2}, testing::places(2), PipelineOptions().schedule(kind));
    pipeline.step(problem.input, problem.target, testing::mean_loss);
    testing::mean_loss(problem.serial->forward(problem.input), problem.target).backward();
    const auto gradient = problem.net->at<torch::nn::LinearImpl>(2).weight.grad();
    expect_close(
        gradient, problem.serial->at<torch::nn::LinearImpl>(2).weight.grad(), 1e-12, "weight");
    EXPECT_FALSE(problem.net->at<torch::nn::LinearImpl>(0).weight.grad().defined());
  }
}

// A layer that works in place right after the cut changes what the stage before handed over.
TEST(Pipeline, LayersMayWorkInPlaceAfterACut) {
  torch::nn::Sequential net(torch::nn::Linear(3, 4), torch::nn::ReLU(torch::nn::ReLUOptions(true)),
      torch::nn::Linear(4, 2));
  auto serial = testing::copy_of(net);
  const auto input = torch::randn({6, 3}), target = torch::randn({6, 2});
  Pipeline pipeline(layers_of(net), {1, 2}, testing::places(2));
  pipeline.step(input, target, testing::mean_loss);
  testing::mean_loss(serial->forward(input), target).backward();
  testing::expect_same_gradients(*net, *serial, 1e-6);
}

std::string refusal_of_pipeline(
    const std::vector<int>& balance, int places, const PipelineOptions& options = {}) {
  const auto problem = make_problem({3, 4, 2}, 5);
  return testing::message_of<InvalidArgument>([&] {
    const Pipeline pipeline(layers_of(problem.net), balance, testing::places(places), options);
  });
}

TEST(Pipeline, StagesAndChunksThatDoNotFitAreRefused) {
  EXPECT_THAT(refusal_of_pipeline({1, 1, 1}, 2), AllOf(HasSubstr("3"), HasSubstr("1f1b")));
  EXPECT_THAT(refusal_of_pipeline({3}, 2), HasSubstr("2 places cannot share 1 stage"));
  EXPECT_THAT(refusal_of_pipeline({1, 1}, 2), HasSubstr("adds up to 2 layers, the model has 3"));
  EXPECT_THAT(refusal_of_pipeline({1, 2}, 2, PipelineOptions().chunks(0)), HasSubstr("chunks"));
}

TEST(Pipeline, TheLossMustBeAScalar) {
  auto problem = make_problem({3, 4, 2}, 5);
  Pipeline pipeline(layers_of(problem.net), {1, 2}, testing::places(2));
  const auto unreduced = [](const torch::Tensor& output, const torch::Tensor& target) {
    return output - target;
  };
  EXPECT_THROW(pipeline.step(problem.input, problem.target, unreduced), InvalidArgument);
}

/// A pipeline of either face in two places or ranks, with a copy of the net that it trains.
struct Face {
  torch::nn::Sequential net;
  bool has_first, has_last;
  std::function<torch::Tensor(const torch::Tensor&, const torch::Tensor&)> step;
  std::function<torch::Tensor(const torch::Tensor&)> evaluate;
};

using Use = std::function<void(Face&)>;

Face face_of(auto& pipeline, const torch::nn::Sequential& net, bool has_first, bool has_last) {
  return {net, has_first, has_last,
      [&pipeline](const torch::Tensor& input, const torch::Tensor& target) {
        return pipeline.step(input, target, testing::loss_there);
      },
      [&pipeline](const torch::Tensor& input) {
        const torch::NoGradGuard no_grad;
        return pipeline(input);
      }};
}

class PipelineFaces : public ::testing::TestWithParam<std::string> {
 protected:
  // Each rank has a net of its own, cut into two stages, or four of an interleaved schedule.
  static void with_face(const torch::nn::Sequential& net, const std::vector<int>& balance,
      const PipelineOptions& options, const Use& use) {
    if (GetParam() == "places") {
      const auto copy = testing::copy_of(net);
      Pipeline pipeline(layers_of(copy), balance, testing::places(2), options);
      Face face = face_of(pipeline, copy, true, true);
      use(face);
      return;
    }
    testing::run_ranks(2, [&](const ProcessGroup& world) {
      const auto copy = testing::copy_of(net);
      PipelineStage stage(
          layers_of(copy), balance, world, options, ProcessGroup(), testing::this_device());
      Face face = face_of(stage, copy, world.rank() == 0, world.rank() == 1);
      use(face);
    });
  }

  static torch::Tensor leaf(const torch::Tensor& tensor) {
    return testing::here(tensor).detach().clone().requires_grad_();
  }
};

TEST_P(PipelineFaces, GiveAnInputItsGradient) {
  for (const auto kind : {ScheduleKind::kSequential, ScheduleKind::kGPipe, ScheduleKind::k1F1B,
           ScheduleKind::kInterleaved, ScheduleKind::kZeroBubble}) {
    const bool has_four = kind == ScheduleKind::kInterleaved || kind == ScheduleKind::kZeroBubble;
    const auto balance = has_four ? std::vector<int>{1, 2, 1, 1} : std::vector<int>{3, 2};
    const auto problem = make_problem({5, 7, 6, 3}, 6);
    const auto serial_input = problem.input.clone().requires_grad_();
    auto serial = problem.serial;
    testing::mean_loss(serial->forward(serial_input), problem.target).backward();
    with_face(problem.net, balance, PipelineOptions().chunks(4).schedule(kind), [&](Face& face) {
      const auto input = leaf(problem.input);
      face.step(input, testing::here(problem.target));
      if (face.has_first)
        expect_close(input.grad(), serial_input.grad(), 1e-10, concat("input, ", name_of(kind)));
    });
  }
}

TEST_P(PipelineFaces, TrainWhatComesBeforeTheStages) {
  const auto problem = make_problem({5, 7, 6, 3}, 6);
  const auto table = torch::randn({5}, torch::kDouble);
  const auto serial_table = table.clone().requires_grad_();
  auto serial = problem.serial;
  for (int step = 0; step < 2; ++step)
    testing::mean_loss(serial->forward(problem.input * serial_table), problem.target).backward();
  with_face(problem.net, {3, 2}, PipelineOptions().chunks(3), [&](Face& face) {
    const auto own = leaf(table);
    for (int step = 0; step < 2; ++step)
      face.step(testing::here(problem.input) * own, testing::here(problem.target));
    if (face.has_first) expect_close(own.grad(), serial_table.grad(), 1e-10, "table");
  });
}

// The first layer may look at nothing of some micro-batches, or of all.
TEST_P(PipelineFaces, AnInputThatIsNotUsedHasNoGradient) {
  for (const double bound : {0.0, 100.0}) {
    torch::nn::Sequential net(torch::nn::Functional([bound](const torch::Tensor& input) {
      return input.detach().sum().item<double>() > bound ? input : input.detach();
    }),
        torch::nn::Linear(3, 2));
    net->to(torch::kDouble);
    const auto given = torch::tensor({1.0, -1.0}, torch::kDouble).view({2, 1}).expand({2, 3});
    with_face(net, {1, 1}, PipelineOptions().chunks(2), [&](Face& face) {
      const auto input = leaf(given);
      face.step(input, testing::here(torch::zeros({2, 2}, torch::kDouble)));
      if (!face.has_first) return;
      EXPECT_EQ(input.grad().defined(), bound == 0);
      if (!input.grad().defined()) return;
      EXPECT_NE(input.grad()[0].abs().sum().item<double>(), 0);
      EXPECT_EQ(input.grad()[1].abs().sum().item<double>(), 0);
    });
  }
}

TEST_P(PipelineFaces, GiveTheLossDetachedAndTheOutput) {
  const auto problem = make_problem({3, 4, 2}, 5);
  auto serial = problem.serial;
  const auto output = serial->forward(problem.input).detach();
  const auto loss = testing::mean_loss(output, problem.target);
  with_face(problem.net, {1, 2}, PipelineOptions().chunks(2), [&](Face& face) {
    const auto given = face.step(testing::here(problem.input), testing::here(problem.target));
    EXPECT_FALSE(given.requires_grad());
    EXPECT_EQ(given.dim(), 0);
    expect_close(given.to(torch::kDouble), loss, 1e-12, "loss");
    expect_close(face.evaluate(testing::here(problem.input)), output, 1e-12, "output");
  });
}

TEST_P(PipelineFaces, DeferStatisticsToTheWholeBatch) {
  torch::manual_seed(4);
  torch::nn::Sequential net(torch::nn::BatchNorm1d(3), torch::nn::Linear(3, 2));
  net->to(torch::kDouble);
  const auto input = torch::randn({6, 3}, torch::kDouble),
             target = torch::randn({6, 2}).to(torch::kDouble);
  auto serial = testing::copy_of(net);
  serial->forward(testing::here(input));
  with_face(net, {1, 1}, PipelineOptions().chunks(3).deferred_batch_norm(true), [&](Face& face) {
    face.step(testing::here(input), testing::here(target));
    if (!face.has_first) return;
    for (const auto& buffer : serial->named_buffers())
      expect_close(face.net->named_buffers()[buffer.key()].to(torch::kDouble),
          buffer.value().to(torch::kDouble), 1e-10, buffer.key());
  });
}

TEST_P(PipelineFaces, RefuseTheSameSteps) {
  const auto problem = make_problem({3, 4, 2}, 4);
  const auto refusal = [&](std::int64_t targets, bool with_gradients) {
    return testing::message_of<std::exception>([&] {
      with_face(problem.net, {1, 2}, PipelineOptions().chunks(2), [&](Face& face) {
        const torch::AutoGradMode mode(with_gradients);
        face.step(
            testing::here(problem.input), testing::here(problem.target.narrow(0, 0, targets)));
      });
    });
  };
  EXPECT_THAT(refusal(3, true),
      HasSubstr("pipeline: input [4, 3] and target [3, 2] must have the same batch"));
  EXPECT_THAT(refusal(4, false), HasSubstr("pipeline: a step needs gradients, and they are off"));
}

INSTANTIATE_TEST_SUITE_P(Faces, PipelineFaces, ::testing::Values("places", "ranks"),
    [](const auto& face) { return face.param; });

}  // namespace
}  // namespace lockstep
