// Steps of a task of two turns, spread in every way, against two optimizers of LibTorch.

#include "lockstep/train/strategy/turns.h"

#include <gtest/gtest.h>
#include <memory>
#include <mutex>
#include <tuple>
#include <utility>
#include <vector>

#include "tests/support/message_of.h"
#include <ATen/ops/allclose.h>
#include <ATen/ops/rand.h>
#include <torch/nn/modules/linear.h>
#include <torch/optim/sgd.h>

#include "lockstep/comm/process_group.h"
#include "lockstep/core/error.h"
#include "lockstep/core/text.h"
#include "lockstep/train/strategy/replica.h"
#include "lockstep/train/task/program.h"

namespace lockstep {
namespace {

using nn::TaskBatch, nn::TaskResult, nn::TurnOptions;
using testing::message_of;

constexpr int kTurnSteps = 3;
constexpr double kTurnRate = 0.1, kTurnMomentum = 0.9, kSlower = 0.5;

// Two nets, one behind the other.
class TwoNetsImpl final : public nn::CloneByArguments<TwoNetsImpl, nn::ModelImpl> {
 public:
  TwoNetsImpl()
      : first(register_module("first", torch::nn::Linear(10, 3))),
        second(register_module("second", torch::nn::Linear(3, 1))) {}
  std::tuple<> arguments() const { return {}; }

  torch::Tensor forward(torch::Tensor rows) override { return second(first(rows).tanh()); }

  torch::nn::Linear first, second;
};

torch::Tensor loss_of_first(TwoNetsImpl& net, const torch::Tensor& rows) {
  return net.forward(rows).square().mean();
}

torch::Tensor loss_of_second(TwoNetsImpl& net, const torch::Tensor& rows) {
  return (net.forward(rows) - rows.narrow(1, 0, 1)).square().mean();
}

std::vector<nn::TaskTurn> two_turns() {
  const auto first = [](TwoNetsImpl& net, const TaskBatch& batch) {
    return TaskResult{.loss = loss_of_first(net, batch.input())};
  };
  const auto second = [](TwoNetsImpl& net, const TaskBatch& batch) {
    return TaskResult{.loss = loss_of_second(net, batch.input())};
  };
  return {nn::turn("first", first), nn::turn("second", second, TurnOptions{.lr = kSlower})};
}

// Ranks that are threads share LibTorch's generator.
auto drawn_with(std::uint64_t seed, const auto& draw) {
  static std::mutex mutex;
  const std::lock_guard lock(mutex);
  torch::manual_seed(seed);
  return draw();
}

nn::Model two_nets(const std::vector<nn::TaskTurn>& turns) {
  const std::shared_ptr<nn::ModelImpl> net =
      drawn_with(1, [] { return std::make_shared<TwoNetsImpl>(); });
  const std::shared_ptr<nn::ModelImpl> model =
      std::make_shared<nn::TaskModelImpl>(nn::PluginTask{"two", turns}, nn::Model(net), 1);
  return nn::Model(model);
}

Batch batch_of_step(int step, std::int64_t begin = 0, std::int64_t end = 8) {
  const Batch whole = drawn_with(100 + static_cast<std::uint64_t>(step), [] {
    return Batch(at::rand({8, 10}), at::rand({8}));
  });
  return whole.map([&](const torch::Tensor& tensor) { return tensor.slice(0, begin, end); });
}

/// The losses of both turns of each step, and the parameters after the last one.
struct Trained {
  std::vector<double> losses;
  std::vector<torch::Tensor> parameters;
};

Trained by_two_optimizers() {
  torch::manual_seed(1);
  TwoNetsImpl net;
  const auto options = [](double lr) {
    return torch::optim::SGDOptions(lr).momentum(kTurnMomentum);
  };
  torch::optim::SGD first(net.first->parameters(), options(kTurnRate));
  torch::optim::SGD second(net.second->parameters(), options(kTurnRate * kSlower));
  Trained trained;
  for (int step = 0; step < kTurnSteps; ++step) {
    const torch::Tensor rows = batch_of_step(step).input();
    const auto take = [&](const torch::Tensor& loss, torch::optim::Optimizer& optimizer) {
      optimizer.zero_grad();
      loss.backward();
      optimizer.step();
      trained.losses.push_back(loss.item<double>());
    };
    take(loss_of_first(net, rows), first);
    take(loss_of_second(net, rows), second);
  }
  trained.parameters = net.parameters();
  return trained;
}

TrainOptions turn_options(Parallel way) {
  TrainOptions options;
  options.parallel = way;
  options.batch_size = 8;
  options.optimizer = default_settings(OptimizerKind::kSgd);
  options.optimizer.momentum = kTurnMomentum;
  return options;
}

// Ranks share each batch out.
Trained by_replica(const TrainOptions& options, const ProcessGroup& world) {
  const PreparedModel prepared{.model = two_nets(two_turns()),
      .task = std::make_shared<Program>(std::vector<std::string>()),
      .start = {}};
  const RankGroups groups{world, world, ProcessGroup()};
  ModuleReplica replica(options, groups, prepared, cpu_places(2));
  EXPECT_EQ(replica.turns(), 2);
  replica.set_training(true);
  Trained trained;
  const std::int64_t share = 8 / world.size(), begin = world.rank() * share;
  for (int step = 0; step < kTurnSteps; ++step) {
    const Batch batch = batch_of_step(step, begin, begin + share);
    for (StepPart part; part.turn < replica.turns(); ++part.turn) {
      trained.losses.push_back(replica.backward(batch, part, step).item<double>());
      replica.update(kTurnRate, part.turn);
    }
  }
  trained.parameters = replica.parameters();
  return trained;
}

void expect_same_training(const Trained& trained, const Trained& expected) {
  ASSERT_EQ(trained.losses.size(), expected.losses.size());
  for (std::size_t i = 0; i < expected.losses.size(); ++i)
    EXPECT_NEAR(trained.losses[i], expected.losses[i], 1e-5) << i;
  for (std::size_t i = 0; i < expected.parameters.size(); ++i)
    EXPECT_TRUE(at::allclose(trained.parameters[i], expected.parameters[i], 1e-5, 1e-6)) << i;
}

TEST(StepOfTurns, IsThatOfTwoOptimizersByThreadsToo) {
  for (const Parallel way : {Parallel::kSerial, Parallel::kDp}) {
    SCOPED_TRACE(name_of(way));
    expect_same_training(by_replica(turn_options(way), ProcessGroup()), by_two_optimizers());
  }
}

// The mean of the ranks' losses is that of the batch.
TEST(StepOfTurns, IsThatOfTwoOptimizersByRanks) {
  for (const bool is_sharded : {false, true}) {
    TrainOptions options = turn_options(Parallel::kDdp);
    options.optimizer.sharded = is_sharded;
    std::vector<Trained> of_ranks(2);
    run_ranks(2, [&](const ProcessGroup& world) {
      of_ranks[static_cast<std::size_t>(world.rank())] = by_replica(options, world);
    });
    Trained both = of_ranks[0];
    for (std::size_t i = 0; i < both.losses.size(); ++i)
      both.losses[i] = (both.losses[i] + of_ranks[1].losses[i]) / 2;
    expect_same_training(both, by_two_optimizers());
  }
}

TEST(Turns, ShareTheTrainedParametersOut) {
  const auto made = [](std::vector<nn::TaskTurn> turns) {
    return message_of<InvalidArgument>([&] { Turns(two_nets(turns).ptr()); });
  };
  auto turns = two_turns();
  turns[1].options.modules = {"third", "sec"};
  EXPECT_EQ(made(turns),
      "train: the turn second of --task steps the parameters of third, sec, and "
      "the model trains none there");
  turns[1].options.modules = {"second", "first.bias"};
  EXPECT_EQ(made(turns),
      "train: the turns first and second of --task step the same parameters; "
      "each belongs to one");
  EXPECT_EQ(made({two_turns().front()}),
      "train: no turn of --task steps second.weight; name its module in one, or --freeze it");
  const nn::Model model = two_nets({two_turns().front()});
  for (const auto& parameter : model->named_parameters())
    if (parameter.key().starts_with("second")) parameter.value().requires_grad_(false);
  EXPECT_EQ(Turns(model.ptr()).size(), 1);
}

TEST(Turns, EvaluationsHaveTheLossOfAll) {
  nn::Model model = two_nets(two_turns());
  model->eval();
  const at::NoGradGuard no_gradients;
  const torch::Tensor row = model->MultiInputModule::forward(Program::tensors(batch_of_step(0)));
  EXPECT_EQ(model->numbers(), (std::vector<std::string>{"first_loss", "second_loss"}));
  ASSERT_EQ(row.sizes(), (std::vector<std::int64_t>{1, 4}));
  EXPECT_EQ(row[0][0].item<double>(), 8);
  EXPECT_FLOAT_EQ(row[0][1].item<float>(), (row[0][2] + row[0][3]).item<float>());
}

}  // namespace
}  // namespace lockstep
