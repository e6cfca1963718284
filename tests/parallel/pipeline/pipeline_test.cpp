#include "lockstep/parallel/pipeline/pipeline.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "serial_reference.h"
#include "tests/support/message_of.h"
#include "tests/support/places.h"
#include <torch/nn/modules/activation.h>
#include <torch/optim/sgd.h>

#include "lockstep/core/error.h"

namespace lockstep {
namespace {

using ::testing::HasSubstr;
using testing::make_problem;
using testing::Problem;

constexpr ScheduleKind kPlain[] = {ScheduleKind::kSequential, ScheduleKind::kGPipe,
    ScheduleKind::k1F1B, ScheduleKind::kZeroBubble};

// P1: Linear 1-2-4-2-1, batch 8, 4 chunks, mean loss.
TEST(Pipeline, P1Transparency) {
  for (const auto kind : kPlain) {
    auto problem = make_problem({1, 2, 4, 2, 1}, 8);
    Pipeline pipeline(layers_of(problem.net), {3, 4}, testing::places(2),
        PipelineOptions().chunks(4).schedule(kind));
    const auto loss = testing::mean_loss(problem.serial->forward(problem.input), problem.target);
    loss.backward();
    const auto ours = pipeline.step(problem.input, problem.target, testing::mean_loss);
    testing::expect_close(ours, loss, 1e-12, "loss");
    testing::expect_same_gradients(*problem.net, *problem.serial);
  }
}

void train_serially(const Problem& problem, int steps, const LossFunction& loss) {
  torch::optim::SGD optimizer(problem.serial->parameters(), 0.1);
  for (int step = 0; step < steps; ++step) {
    optimizer.zero_grad();
    loss(torch::nn::Sequential(problem.serial)->forward(problem.input), problem.target).backward();
    optimizer.step();
  }
}

// Stages, places, schedules, chunks that divide the batch and that do not, both losses.
void expect_pipeline_trains_as_serially(
    const std::vector<int>& balance, int places, const PipelineOptions& options) {
  auto problem = make_problem({5, 7, 6, 8, 3}, 7);
  const auto loss =
      options.reduction() == LossReduction::kMean ? testing::mean_loss : testing::sum_loss;
  train_serially(problem, 5, loss);
  Pipeline pipeline(layers_of(problem.net), balance, testing::places(places), options);
  torch::optim::SGD optimizer(pipeline.parameters(), 0.1);
  for (int step = 0; step < 5; ++step) {
    optimizer.zero_grad();
    pipeline.step(problem.input, problem.target, loss);
    optimizer.step();
  }
  testing::expect_same_parameters(*problem.net, *problem.serial);
}

TEST(Pipeline, P2TrainsAsTheSerialModel) {
  for (const auto kind : kPlain) {
    for (const int chunks : {1, 2, 3, 7, 9}) {
      const auto options = PipelineOptions().chunks(chunks).schedule(kind);
      expect_pipeline_trains_as_serially({3, 4}, 2, options);
      expect_pipeline_trains_as_serially({2, 2, 3}, 3, options);
    }
    expect_pipeline_trains_as_serially(
        {3, 4}, 2, PipelineOptions().schedule(kind).reduction(LossReduction::kSum));
  }
}

TEST(Pipeline, P2InterleavedStagesTrainAsTheSerialModel) {
  for (const auto kind : {ScheduleKind::kInterleaved, ScheduleKind::kZeroBubble}) {
    for (const int chunks : {1, 2, 3, 4, 7}) {
      const auto options = PipelineOptions().chunks(chunks).schedule(kind);
      expect_pipeline_trains_as_serially({2, 2, 2, 1}, 2, options);
      expect_pipeline_trains_as_serially({1, 1, 1, 1, 2, 1}, 3, options);
    }
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
    testing::expect_close(output, expected, 1e-12, "output");
    testing::loss_there(output, problem.target).backward();
    testing::mean_loss(expected, problem.target).backward();
    testing::expect_same_gradients(*problem.net, *problem.serial);
    testing::expect_close(input.grad(), serial_input.grad(), 1e-12, "input");
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
    testing::expect_close(output, problem.serial->forward(problem.input), 1e-12, "output");
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
    testing::expect_close(
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

TEST(Pipeline, FewerPlacesThanStagesIsRefused) {
  EXPECT_THAT(refusal_of_pipeline({1, 1, 1}, 2), HasSubstr("3"));
  EXPECT_THAT(refusal_of_pipeline({1, 1, 1}, 2), HasSubstr("1f1b"));
}

TEST(Pipeline, MorePlacesThanStagesIsRefused) {
  EXPECT_THAT(refusal_of_pipeline({3}, 2), HasSubstr("2 places cannot share 1 stage"));
}

TEST(Pipeline, WrongBalanceIsRefused) {
  EXPECT_THAT(refusal_of_pipeline({1, 1}, 2), HasSubstr("adds up to 2 layers, the model has 3"));
}

TEST(Pipeline, ChunksBelowOneAreRefused) {
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

}  // namespace
}  // namespace lockstep
