// What a pipeline does when a stage throws, is slow, works at random or again.

#include <atomic>
#include <chrono>
#include <gtest/gtest.h>
#include <mutex>
#include <thread>

#include "serial_reference.h"
#include "tests/support/message_of.h"
#include "tests/support/places.h"
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/dropout.h>

#include "lockstep/core/error.h"
#include "lockstep/parallel/pipeline/pipeline.h"

namespace lockstep {
namespace {

using namespace std::chrono_literals;

/// Calls a function with each input and hands the input on.
class SpyImpl : public torch::nn::Module {
 public:
  explicit SpyImpl(std::function<void()> call) : call_(std::move(call)) {}
  torch::Tensor forward(torch::Tensor input) {
    call_();
    return input;
  }

 private:
  std::function<void()> call_;
};
TORCH_MODULE(Spy);

struct Thrown : std::runtime_error {
  Thrown() : std::runtime_error("the last stage fails") {}
};

// P5: the last of four stages throws, the third takes 0.1 s a micro-batch.
TEST(PipelineFaults, P5AStageThatThrowsEndsAll) {
  std::atomic<int> third = 0;
  torch::nn::Sequential net(torch::nn::Linear(2, 2), torch::nn::Linear(2, 2), Spy([&] {
    ++third;
    std::this_thread::sleep_for(100ms);
  }),
      Spy([] { throw Thrown(); }));
  Pipeline pipeline(layers_of(net), {1, 1, 1, 1}, testing::places(4), PipelineOptions().chunks(3));
  const auto input = torch::randn({3, 2});
  EXPECT_THROW(pipeline.step(input, input, testing::mean_loss), Thrown);
  EXPECT_LE(third, 2);
}

TEST(PipelineFaults, P7AStepAfterAFailureWorks) {
  bool fails = true;
  torch::nn::Sequential net(torch::nn::Linear(2, 2), Spy([&] {
    if (fails) throw Thrown();
  }));
  torch::nn::Linear serial(2, 2);
  {
    const torch::NoGradGuard no_grad;
    serial->weight.copy_(net->at<torch::nn::LinearImpl>(0).weight);
    serial->bias.copy_(net->at<torch::nn::LinearImpl>(0).bias);
  }
  Pipeline pipeline(layers_of(net), {1, 1}, testing::places(2));
  const auto input = torch::randn({4, 2}), target = torch::randn({4, 2});
  EXPECT_THROW(pipeline.step(input, target, testing::mean_loss), Thrown);
  fails = false;
  net->zero_grad();
  pipeline.step(input, target, testing::mean_loss);
  testing::mean_loss(serial(input), target).backward();
  testing::expect_close(
      net->at<torch::nn::LinearImpl>(0).weight.grad(), serial->weight.grad(), 1e-6, "weight");
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
  torch::nn::Sequential net(Spy([&] { note(0); }), torch::nn::Linear(2, 2), Spy([&] { note(1); }));
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

TEST(PipelineFaults, P3GradientsAreTheSameWithRecomputation) {
  for (const auto kind : {ScheduleKind::kGPipe, ScheduleKind::k1F1B, ScheduleKind::kZeroBubble}) {
    auto net = testing::make_chain({3, 4, 4, 2});
    auto serial = testing::copy_of(net);
    const auto input = torch::randn({5, 3}, torch::kDouble);
    const auto target = torch::randn({5, 2}, torch::kDouble);
    Pipeline pipeline(layers_of(net), {2, 3}, testing::places(2),
        PipelineOptions().schedule(kind).checkpoint(Checkpoint::kAlways));
    pipeline.step(input, target, testing::mean_loss);
    testing::mean_loss(serial->forward(input), target).backward();
    testing::expect_same_gradients(*net, *serial);
    net->zero_grad();
    testing::loss_there(pipeline(input), target).backward();
    testing::expect_same_gradients(*net, *serial);
  }
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
