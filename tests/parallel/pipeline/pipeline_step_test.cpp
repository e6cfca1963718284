// What a pipeline's step does apart from its sums: statistics, messages, modes.

#include <atomic>
#include <exception>
#include <functional>
#include <gtest/gtest.h>
#include <stdexcept>

#include "serial_reference.h"
#include "tests/comm/group_factory.h"
#include "tests/support/message_of.h"
#include "tests/support/places.h"
#include <ATen/autocast_mode.h>
#include <c10/util/Exception.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/container/functional.h>

#include "lockstep/comm/process_group.h"
#include "lockstep/core/error.h"
#include "lockstep/nn/autocast.h"
#include "lockstep/parallel/pipeline/pipeline.h"

namespace lockstep {
namespace {

// A layer that calls a function and hands its input on.
torch::nn::Functional calling(std::function<void()> call) {
  return torch::nn::Functional([call = std::move(call)](const torch::Tensor& input) {
    call();
    return input;
  });
}

// What a step that failed left of its batch is no part of the next one's statistics.
TEST(PipelineStep, AStepThatFailedLeavesNoDeferredStatistics) {
  bool fails = true;
  torch::nn::BatchNorm1d norm(2), serial(2);
  torch::nn::Sequential net(norm, calling([&] {
    if (fails) throw std::domain_error("the last stage fails");
  }));
  Pipeline pipeline(layers_of(net), {1, 1}, testing::places(2),
      PipelineOptions().chunks(2).deferred_batch_norm(true));
  const auto input = torch::randn({4, 2}), target = torch::randn({4, 2});
  EXPECT_THROW(pipeline.step(input + 100, target, testing::mean_loss), std::domain_error);
  fails = false;
  pipeline.step(input, target, testing::mean_loss);
  serial(input);
  testing::expect_close(norm->running_mean, serial->running_mean, 1e-6, "running_mean");
  testing::expect_close(norm->running_var, serial->running_var, 1e-6, "running_var");
}

// As with DistributedDataParallel: a step that adds to gradients keeps its own statistics.
TEST(PipelineStep, BuffersFollowOnceForStepsThatAccumulate) {
  testing::run_ranks(2, [](ProcessGroup replicas) {
    torch::nn::BatchNorm1d norm(1);
    torch::nn::Sequential net(norm, torch::nn::Linear(1, 1));
    const auto places = testing::places(2);
    Pipeline pipeline(layers_of(net), {1, 1}, places, PipelineOptions().chunks(1),
        testing::carrying(replicas, places));
    const auto input = testing::here(torch::tensor({-1.F, 1.F}).view({2, 1}));
    const auto step = [&] {
      norm->running_mean.fill_(10 * (replicas.rank() + 1));
      pipeline.step(input, input, testing::mean_loss);
      return norm->running_mean.item<float>();  // a tenth of the way to 0
    };
    const float own = 9.F * static_cast<float>(replicas.rank() + 1);
    for (int round = 0; round < 2; ++round) {
      {
        const auto accumulate = pipeline.no_sync();
        EXPECT_EQ(step(), 9) << "rank 0's";
        EXPECT_EQ(step(), own);
      }
      EXPECT_EQ(step(), own);
    }
  });
}

// A float batch for a net of doubles, in the first stage and as a target in the last.
TEST(PipelineStep, LibTorchsErrorsNameTheStageWithoutFrames) {
  torch::nn::Sequential net(torch::nn::Linear(2, 2), torch::nn::Linear(2, 2));
  net->to(torch::kDouble);
  Pipeline pipeline(layers_of(net), {1, 1}, testing::places(2));
  const auto good = torch::randn({4, 2}, torch::kDouble), wrong = torch::randn({4, 2});
  const auto message = [&](const torch::Tensor& input, const torch::Tensor& target) {
    return testing::message_of<Error>([&] {
      pipeline.step(input, target, [](const torch::Tensor& output, const torch::Tensor& labels) {
        return (output.matmul(labels.t())).sum();
      });
    });
  };
  const std::string first = message(wrong, good), last = message(good, wrong);
  EXPECT_EQ(first.rfind("pipeline: stage 0: ", 0), 0U) << first;
  EXPECT_EQ(last.rfind("pipeline: stage 1: ", 0), 0U) << last;
  for (const std::string& text : {first, last}) {
    EXPECT_NE(text.find("dtype"), std::string::npos) << text;
    EXPECT_EQ(text.find("frame #"), std::string::npos) << text;
  }
}

TEST(PipelineStep, LibTorchsErrorIsNestedInOurs) {
  torch::nn::Sequential net(torch::nn::Linear(2, 2), torch::nn::Linear(3, 2));
  Pipeline pipeline(layers_of(net), {1, 1}, testing::places(2));
  const auto input = torch::randn({4, 2});
  try {
    pipeline.step(input, input, testing::mean_loss);
    FAIL() << "nothing was thrown";
  } catch (const Error& error) {
    EXPECT_THROW(std::rethrow_if_nested(error), c10::Error);
  }
}

// Autocast is for forward and loss, whoever computes backward, and for what is computed again.
TEST(PipelineStep, BackwardIsWithoutAutocast) {
  for (const auto kind : {ScheduleKind::k1F1B, ScheduleKind::kZeroBubble}) {
    for (const auto checkpoint : {Checkpoint::kNever, Checkpoint::kAlways}) {
      std::atomic<int> forwards = 0, backwards = 0;
      const auto count = [&](std::atomic<int>& calls, bool expected) {
        ++calls;
        EXPECT_EQ(at::autocast::is_autocast_enabled(at::kCPU), expected);
      };
      torch::nn::Sequential net(calling([&] { count(forwards, true); }), torch::nn::Linear(2, 2),
          calling([&] { count(forwards, true); }), torch::nn::Linear(2, 2));
      for (const auto& parameter : net->parameters())
        parameter.register_hook([&](const torch::Tensor&) { count(backwards, false); });
      Pipeline pipeline(layers_of(net), {2, 2}, testing::places(2),
          PipelineOptions().chunks(2).schedule(kind).checkpoint(checkpoint));
      const auto input = torch::randn({4, 2});
      const nn::Autocast autocast(at::kCPU, at::kBFloat16);
      pipeline.step(input, input, testing::mean_loss);
      EXPECT_EQ(forwards, checkpoint == Checkpoint::kAlways ? 8 : 4);
      EXPECT_GE(backwards, 4);
    }
  }
}

}  // namespace
}  // namespace lockstep
