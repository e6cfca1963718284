// A pipeline's step apart from its sums: statistics, messages and modes, and stages that throw, are
// slow, work at random or again.

#include <atomic>
#include <chrono>
#include <exception>
#include <functional>
#include <gtest/gtest.h>
#include <mutex>
#include <stdexcept>
#include <thread>

#include "serial_reference.h"
#include "tests/comm/group_factory.h"
#include "tests/support/message_of.h"
#include "tests/support/places.h"
#include <ATen/autocast_mode.h>
#include <c10/util/Exception.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/container/functional.h>
#include <torch/nn/modules/dropout.h>
#include <torch/nn/modules/linear.h>

#include "lockstep/comm/process_group.h"
#include "lockstep/core/error.h"
#include "lockstep/nn/autocast.h"
#include "lockstep/parallel/pipeline/pipeline.h"

namespace lockstep {
namespace {

using namespace std::chrono_literals;

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

/// Adds a third of the second tensor to the product of the first one.
struct TakesTwo : torch::nn::Module {
  std::vector<torch::Tensor> forward(std::vector<torch::Tensor> given) {
    return {linear(given.at(0)), given.at(1)};
  }
  torch::nn::Linear linear = register_module("linear", torch::nn::Linear(3, 3));
};

struct GivesOne : torch::nn::Module {
  torch::Tensor forward(std::vector<torch::Tensor> given) {
    return linear(given.at(0)) + given.at(1) / 3;
  }
  torch::nn::Linear linear = register_module("linear", torch::nn::Linear(3, 3));
};

// Both get their gradients, also where the pipeline is called like a module.
TEST(PipelineStep, SeveralInputs) {
  const auto first = std::make_shared<TakesTwo>();
  const auto second = std::make_shared<GivesOne>();
  Layers layers;
  layers.insert("first", torch::nn::AnyModule(first));
  layers.insert("second", torch::nn::AnyModule(second));
  const auto target = torch::randn({5, 3});
  const auto inputs = [] {
    torch::manual_seed(4);
    return std::vector{
        torch::randn({5, 3}).requires_grad_(), torch::randn({5, 3}).requires_grad_()};
  };
  const auto serial = inputs(), stepped = inputs(), called = inputs();
  testing::mean_loss(second->forward(first->forward(serial)), target).backward();
  for (const auto& layer : layers) layer.value().ptr()->zero_grad();
  Pipeline pipeline(layers, {1, 1}, testing::places(2), PipelineOptions().chunks(2));
  pipeline.step(stepped, target, testing::mean_loss);
  testing::loss_there(pipeline(called), target).backward();
  for (std::size_t i = 0; i < serial.size(); ++i) {
    testing::expect_close(stepped[i].grad(), serial[i].grad(), 1e-6, "of a step");
    testing::expect_close(called[i].grad(), serial[i].grad(), 1e-6, "of a call");
  }
  EXPECT_THROW(pipeline.step(std::vector{torch::ones({5, 3}), torch::ones({4, 3})}, target,
                   testing::mean_loss),
      InvalidArgument);
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

struct Thrown : std::runtime_error {
  Thrown() : std::runtime_error("the last stage fails") {}
};

// P5: the last of four stages throws, the third takes 0.1 s a micro-batch.
TEST(PipelineFaults, P5AStageThatThrowsEndsAll) {
  std::atomic<int> third = 0;
  torch::nn::Sequential net(torch::nn::Linear(2, 2), torch::nn::Linear(2, 2), calling([&] {
    ++third;
    std::this_thread::sleep_for(100ms);
  }),
      calling([] { throw Thrown(); }));
  Pipeline pipeline(layers_of(net), {1, 1, 1, 1}, testing::places(4), PipelineOptions().chunks(3));
  const auto input = torch::randn({3, 2});
  EXPECT_THROW(pipeline.step(input, input, testing::mean_loss), Thrown);
  EXPECT_LE(third, 2);
}

TEST(PipelineFaults, P7AStepAfterAFailureWorks) {
  bool fails = true;
  torch::nn::Linear layer(2, 2);
  torch::nn::Sequential net(layer, calling([&] {
    if (fails) throw Thrown();
  }));
  auto serial = testing::copy_of(torch::nn::Sequential(layer));
  Pipeline pipeline(layers_of(net), {1, 1}, testing::places(2));
  const auto input = torch::randn({4, 2}), target = torch::randn({4, 2});
  EXPECT_THROW(pipeline.step(input, target, testing::mean_loss), Thrown);
  fails = false;
  net->zero_grad();
  pipeline.step(input, target, testing::mean_loss);
  testing::mean_loss(serial->forward(input), target).backward();
  testing::expect_close(layer->weight.grad(), serial->parameters()[0].grad(), 1e-6, "weight");
}

// P6: with a slow second stage the first runs ahead.
TEST(PipelineFaults, P6SlowSecondStage) {
  std::mutex mutex;
  std::vector<std::pair<int, int>> order;
  int counts[2] = {0, 0};
  const auto note = [&](int stage) {
    {
      const std::lock_guard lock(mutex);
      order.emplace_back(counts[stage]++, stage);
    }
    if (stage == 1) std::this_thread::sleep_for(100ms);
  };
  torch::nn::Sequential net(
      calling([&] { note(0); }), torch::nn::Linear(2, 2), calling([&] { note(1); }));
  Pipeline pipeline(layers_of(net), {2, 1}, testing::places(2),
      PipelineOptions().chunks(3).schedule(ScheduleKind::kGPipe));
  const auto input = torch::randn({3, 2});
  pipeline.step(input, input, testing::mean_loss);
  ASSERT_EQ(order.size(), 6U);
  // The first stage never waits, so it is done before the second has taken its second.
  EXPECT_EQ(order[0], std::pair(0, 0));
  EXPECT_EQ(order[4], std::pair(1, 1));
  EXPECT_EQ(order[5], std::pair(2, 1));
}

// P3: how many micro-batches of two are computed again.
std::int64_t recomputed(Checkpoint checkpoint, bool with_gradients = true) {
  torch::nn::Sequential net(torch::nn::Linear(2, 2), torch::nn::Linear(2, 2));
  Pipeline pipeline(layers_of(net), {1, 1}, testing::places(2),
      PipelineOptions().chunks(2).checkpoint(checkpoint));
  const auto input = torch::randn({4, 2});
  if (with_gradients) {
    pipeline.step(input, input, testing::mean_loss);
  } else {
    const torch::NoGradGuard no_grad;
    pipeline(input);
  }
  return pipeline.recomputed() / 2;  // stages
}

TEST(PipelineFaults, P3Recomputation) {
  EXPECT_EQ(recomputed(Checkpoint::kAlways), 2);
  EXPECT_EQ(recomputed(Checkpoint::kExceptLast), 1);
  EXPECT_EQ(recomputed(Checkpoint::kNever), 0);
  EXPECT_EQ(recomputed(Checkpoint::kAlways, false), 0);
}

class InPlaceImpl : public torch::nn::Module {
 public:
  torch::Tensor forward(torch::Tensor input) { return input.mul_(2); }
};
TORCH_MODULE(InPlace);

TEST(PipelineFaults, P3ChangeOfASavedInputIsReported) {
  torch::nn::Sequential net(torch::nn::Linear(2, 2), InPlace(), torch::nn::Linear(2, 2));
  Pipeline pipeline(layers_of(net), {1, 2}, testing::places(2),
      PipelineOptions().checkpoint(Checkpoint::kAlways));
  const auto input = torch::randn({4, 2});
  EXPECT_THROW(pipeline.step(input, input, testing::mean_loss), Error);
}

// P4: dropout drops the same in the forward that is computed again.
TEST(PipelineFaults, P4DropoutOfARecomputedForward) {
  for (const auto checkpoint : {Checkpoint::kAlways, Checkpoint::kNever}) {
    torch::nn::Sequential net;
    for (int layer = 0; layer < 100; ++layer) net->push_back(torch::nn::Dropout(0.001));
    Pipeline pipeline(layers_of(net), {50, 50}, testing::places(2),
        PipelineOptions().chunks(10).checkpoint(checkpoint));
    const auto input = torch::ones({10, 100}).requires_grad_();
    const auto output = pipeline(input);
    output.sum().backward();
    EXPECT_GT((output == 0).sum().item<int>(), 0);
    EXPECT_TRUE(torch::equal((output == 0).cpu(), (input.grad() == 0).cpu()));
  }
}

TEST(PipelineFaults, DropoutFollowsTheSeedWhateverTheThreadsDo) {
  const auto run = [](ScheduleKind kind) {
    torch::manual_seed(7);
    auto net = testing::make_chain({4, 8, 2});
    Layers layers = layers_of(net);
    layers.insert("dropout", torch::nn::AnyModule(torch::nn::Dropout(0.5)));
    Pipeline pipeline(layers, {2, 2}, testing::places(2), PipelineOptions().schedule(kind));
    const auto input = torch::randn({8, 4}, torch::kDouble);
    pipeline.step(input, torch::zeros({8, 2}, torch::kDouble), testing::mean_loss);
    return net->parameters().front().grad();
  };
  const auto first = run(ScheduleKind::k1F1B);
  EXPECT_TRUE(torch::equal(run(ScheduleKind::k1F1B), first));
  EXPECT_TRUE(torch::equal(run(ScheduleKind::kGPipe), first));
}

// P10: running statistics of the whole batch; each micro-batch is normalised by its own.
void expect_deferred_statistics(Checkpoint checkpoint, std::optional<double> momentum) {
  const auto options = torch::nn::BatchNorm1dOptions(3).momentum(momentum);
  torch::nn::Sequential net(torch::nn::BatchNorm1d(options), torch::nn::Linear(3, 2));
  torch::nn::BatchNorm1d whole(options);
  Pipeline pipeline(layers_of(net), {1, 1}, testing::places(2),
      PipelineOptions().deferred_batch_norm(true).checkpoint(checkpoint));
  for (int step = 0; step < 3; ++step) {
    const auto input = torch::randn({16, 3}) * 2 + 1;
    whole(input);
    pipeline.step(input, torch::zeros({16, 2}), testing::mean_loss);
  }
  const auto& ours = *net->ptr(0)->as<torch::nn::BatchNorm1dImpl>();
  EXPECT_TRUE(torch::allclose(ours.running_mean, whole->running_mean, 1e-5, 1e-6));
  EXPECT_TRUE(torch::allclose(ours.running_var, whole->running_var, 1e-5, 1e-6));
  EXPECT_EQ(ours.num_batches_tracked.item<int>(), 3);
}

TEST(PipelineFaults, P10DeferredBatchNorm) {
  for (const auto checkpoint : {Checkpoint::kNever, Checkpoint::kAlways}) {
    expect_deferred_statistics(checkpoint, 0.1);
    expect_deferred_statistics(checkpoint, std::nullopt);
  }
}

TEST(PipelineFaults, StatisticsAreUpdatedOnceThoughAForwardIsComputedTwice) {
  torch::nn::Sequential net(torch::nn::BatchNorm1d(3), torch::nn::Linear(3, 2));
  auto serial = testing::copy_of(net);
  Pipeline pipeline(layers_of(net), {1, 1}, testing::places(2),
      PipelineOptions().chunks(2).checkpoint(Checkpoint::kAlways));
  const auto input = torch::randn({8, 3});
  pipeline.step(input, torch::zeros({8, 2}), testing::mean_loss);
  for (const auto& part : input.tensor_split(2)) serial->forward(part);
  const auto& ours = *net->ptr(0)->as<torch::nn::BatchNorm1dImpl>();
  const auto& theirs = *serial->ptr(0)->as<torch::nn::BatchNorm1dImpl>();
  EXPECT_TRUE(torch::equal(ours.running_mean, theirs.running_mean));
  EXPECT_EQ(ours.num_batches_tracked.item<int>(), 2);
}

// P7: values of other forms between stages.
struct TwoImpl : torch::nn::Module {
  std::tuple<torch::Tensor, torch::Tensor> forward(const torch::Tensor& input) {
    return {input.tanh(), input.argmax(1)};
  }
};
TORCH_MODULE(Two);

struct JoinImpl : torch::nn::Module {
  torch::Tensor forward(const std::tuple<torch::Tensor, torch::Tensor>& both) {
    return std::get<0>(both) * std::get<1>(both).unsqueeze(1);
  }
};
TORCH_MODULE(Join);

TEST(PipelineFaults, P7TuplesAndIntegersPassBetweenStages) {
  torch::nn::Sequential net(torch::nn::Linear(3, 3), Two(), Join(), torch::nn::Linear(3, 2));
  net->to(torch::kDouble);
  auto& first = net->at<torch::nn::LinearImpl>(0);
  auto& last = net->at<torch::nn::LinearImpl>(3);
  const auto input = torch::randn({6, 3}, torch::kDouble);
  const auto target = torch::randn({6, 2}, torch::kDouble);
  const auto hidden = first.forward(input);
  testing::mean_loss(last.forward(hidden.tanh() * hidden.argmax(1).unsqueeze(1)), target)
      .backward();
  const auto expected = first.weight.grad().clone();
  for (const auto checkpoint : {Checkpoint::kNever, Checkpoint::kAlways}) {
    net->zero_grad();
    Pipeline pipeline(
        layers_of(net), {2, 2}, testing::places(2), PipelineOptions().checkpoint(checkpoint));
    pipeline.step(input, target, testing::mean_loss);
    testing::expect_close(first.weight.grad(), expected, 1e-10, "first layer");
  }
}

struct NumberImpl : torch::nn::Module {
  int forward(const torch::Tensor&) { return 3; }
};
TORCH_MODULE(Number);

struct FromNumberImpl : torch::nn::Module {
  torch::Tensor forward(int number) { return torch::full({1, 2}, static_cast<double>(number)); }
};
TORCH_MODULE(FromNumber);

TEST(PipelineFaults, P7OtherTypesBetweenStagesAreRefusedByName) {
  torch::nn::Sequential net{Number(), FromNumber()};
  Pipeline pipeline(layers_of(net), {1, 1}, testing::places(2));
  const std::string text = testing::message_of<InvalidArgument>([&] {
    pipeline.step(torch::ones({1, 2}), torch::ones({1, 2}), testing::mean_loss);
  });
  EXPECT_NE(text.find("type int"), std::string::npos) << text;
}

}  // namespace
}  // namespace lockstep
