// FullyShardedDataParallel against the same training in one process and against
// DistributedDataParallel: parameters that are tied, frozen, used twice or computed again,
// accumulation, clipping, memory, and what is refused.

#include "lockstep/parallel/fully_sharded_data_parallel.h"

#include <algorithm>
#include <cstdlib>
#include <functional>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "tests/comm/group_factory.h"
#include "tests/parallel/pipeline/serial_reference.h"
#include "tests/support/message_of.h"
#include "tests/support/places.h"
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/container/functional.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/embedding.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/modules/normalization.h>
#include <torch/optim/adam.h>
#include <torch/optim/sgd.h>

#include "lockstep/comm/process_group.h"
#include "lockstep/core/error.h"
#include "lockstep/device/parameters.h"
#include "lockstep/nn/autocast.h"
#include "lockstep/nn/fused/dropout.h"
#include "lockstep/parallel/distributed_data_parallel.h"
#include "lockstep/parallel/optim/clip_grad_norm.h"
#include "lockstep/parallel/pipeline/checkpoint.h"
#include "lockstep/parallel/place/memory_meter.h"

namespace lockstep {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using Options = FullyShardedDataParallelOptions;
using Sharded = FullyShardedDataParallel<torch::nn::Sequential>;
using testing::expect_close;
using testing::mean_loss;
using testing::message_of;
using testing::share_here;
using torch::nn::Linear;
using torch::nn::LinearOptions;
using torch::nn::Sequential;
using torch::nn::Tanh;

// Six are enough for what differs between steps: the optimizer's state, and memory that is used
// again. Other backends and devices take many times as long.
const bool kIsQuick = !testing::on_devices() && std::getenv("LOCKSTEP_TEST_BACKEND") == nullptr;
const int kSteps = kIsQuick ? 20 : 6;

/// Each layer with parameters is a unit.
Options small_units() { return Options().unit_bytes(1); }

using MakeOptimizer =
    std::function<std::unique_ptr<torch::optim::Optimizer>(const std::vector<torch::Tensor>&)>;

std::unique_ptr<torch::optim::Optimizer> sgd(const std::vector<torch::Tensor>& parameters) {
  return std::make_unique<torch::optim::SGD>(
      parameters, torch::optim::SGDOptions(0.1).momentum(0.9));
}

std::unique_ptr<torch::optim::Optimizer> adam(const std::vector<torch::Tensor>& parameters) {
  return std::make_unique<torch::optim::Adam>(parameters, torch::optim::AdamOptions(0.01));
}

/// The results of a training.
struct Trained {
  std::vector<double> losses;
  std::map<std::string, torch::Tensor> parameters;
};

/// Makes steps; `pass` makes the gradients and returns the loss.
std::vector<double> train(
    torch::optim::Optimizer& optimizer, int steps, const std::function<torch::Tensor()>& pass) {
  std::vector<double> losses;
  for (int step = 0; step < steps; ++step) {
    optimizer.zero_grad();
    losses.push_back(pass().item<double>());
    optimizer.step();
  }
  return losses;
}

std::map<std::string, torch::Tensor> values_of(const torch::nn::Module& net) {
  std::map<std::string, torch::Tensor> values;
  for (const auto& parameter : net.named_parameters())
    values[parameter.key()] = parameter.value().detach().cpu().clone();
  return values;
}

Trained train_alone(Sequential net, const torch::Tensor& input, const torch::Tensor& target,
    const MakeOptimizer& make, int steps = kSteps) {
  const auto optimizer = make(distinct(net->parameters()));
  Trained trained;
  trained.losses = train(*optimizer, steps, [&] {
    auto loss = mean_loss(net->forward(input), target);
    loss.backward();
    return loss;
  });
  trained.parameters = values_of(*net);
  return trained;
}

torch::Tensor mean_over(const ProcessGroup& group, const torch::Tensor& loss) {
  const torch::Tensor mean = loss.detach().reshape({1}).clone();
  group.all_reduce(mean, ReduceOp::kMean).wait();
  return mean;
}

/// Trains on this rank's share of the batch, all of them equally large.
template <typename Model>
Trained train_with(Model& model, const ProcessGroup& group,
    const std::vector<torch::Tensor>& parameters, const torch::Tensor& input,
    const torch::Tensor& target, const MakeOptimizer& make, int steps = kSteps) {
  const auto optimizer = make(parameters);
  const torch::Tensor own = share_here(input, group), wanted = share_here(target, group);
  Trained trained;
  trained.losses = train(*optimizer, steps, [&] {
    auto loss = mean_loss(model(own), wanted);
    loss.backward();
    return mean_over(group, loss);
  });
  return trained;
}

Trained train_sharded(const Sequential& net, const ProcessGroup& group, const Options& options,
    const torch::Tensor& input, const torch::Tensor& target, const MakeOptimizer& make,
    int steps = kSteps) {
  Sharded model(net, group, options);
  Trained trained = train_with(model, group, model.parameters(), input, target, make, steps);
  const auto whole = model.whole();
  trained.parameters = values_of(*net);
  return trained;
}

void expect_as(const Trained& actual, const Trained& expected, double tolerance,
    const std::string& what = "") {
  for (std::size_t step = 0; step < expected.losses.size(); ++step)
    EXPECT_NEAR(actual.losses.at(step), expected.losses[step], tolerance) << what << step;
  for (const auto& [name, value] : expected.parameters)
    expect_close(actual.parameters.at(name), value, tolerance, what + name);
}

/// Ranks of different numbers; on devices as many as there are of those.
std::vector<int> numbers_of_ranks() {
  if (testing::on_devices()) return {2, 3, 4};
  return {1, 2, 3, 4, 8};
}

/// A batch of doubles.
struct Batch {
  torch::Tensor input, target;
};

Batch make_batch(std::int64_t samples, std::int64_t inputs, std::int64_t outputs) {
  return {torch::randn({samples, inputs}, torch::kDouble),
      torch::randn({samples, outputs}, torch::kDouble)};
}

/// Trains copies of a net alone and sharded over ranks.
void expect_trains_as_alone(const Sequential& net, const Batch& batch, int ranks,
    const Options& options, const MakeOptimizer& make, const std::string& what,
    double tolerance = 1e-12) {
  const Trained alone = train_alone(
      testing::copy_of(net), testing::here(batch.input), testing::here(batch.target), make);
  testing::run_ranks(ranks, [&](const ProcessGroup& group) {
    const Trained sharded =
        train_sharded(testing::copy_of(net), group, options, batch.input, batch.target, make);
    expect_as(sharded, alone, tolerance, what);
  });
}

/// Trains a copy of a net that is whole on each rank.
Trained train_replicated(const Sequential& net, const ProcessGroup& group,
    const torch::Tensor& input, const torch::Tensor& target, const MakeOptimizer& make) {
  const Sequential copy = testing::copy_of(net);
  DistributedDataParallel<Sequential> model(copy, group);
  Trained trained = train_with(model, group, distinct(copy->parameters()), input, target, make);
  trained.parameters = values_of(*copy);
  return trained;
}

std::string text_of(const Options& options) {
  return concat("units of ", options.unit_bytes(), " bytes",
      options.reshard() == Reshard::kNever ? ", kept" : "",
      options.checkpoint() ? ", computed again" : "");
}

std::vector<Options> all_kinds() {
  std::vector<Options> kinds;
  for (const std::int64_t unit_bytes : {1, 2000, 1 << 20})
    for (const Reshard reshard : {Reshard::kAfterForward, Reshard::kNever})
      for (const bool checkpoint : {false, true})
        kinds.push_back(Options().unit_bytes(unit_bytes).reshard(reshard).checkpoint(checkpoint));
  return kinds;
}

TEST(FullySharded, TrainsAsTheModelAlone) {
  torch::manual_seed(1);
  Sequential net = testing::make_chain({5, 31, 17, 8, 3});
  const Batch batch = make_batch(24, 5, 3);
  int number = 0;
  for (const int ranks : numbers_of_ranks())
    for (const Options& options : all_kinds())
      expect_trains_as_alone(
          net, batch, ranks, options, ++number % 2 == 0 ? sgd : adam, concat("kind ", number, " "));
}

TEST(FullySharded, HasTheBitsOfDistributedDataParallel) {
  torch::manual_seed(2);
  Sequential net = testing::make_chain({50, 64, 33, 10});
  net->to(torch::kFloat);
  const torch::Tensor input = torch::randn({12, 50}), target = torch::randn({12, 10});
  testing::run_ranks(3, [&](const ProcessGroup& group) {
    const bool is_exact = group.sums_in_rank_order();
    for (const MakeOptimizer& make : {MakeOptimizer(sgd), MakeOptimizer(adam)}) {
      const Trained replicated = train_replicated(net, group, input, target, make);
      for (const std::int64_t unit_bytes : {1, 1 << 20}) {
        const auto options = Options().unit_bytes(unit_bytes);
        expect_as(train_sharded(testing::copy_of(net), group, options, input, target, make),
            replicated, is_exact ? 0 : 1e-5);
      }
    }
  });
}

// Copies of the model, each shared by some of the ranks.

TEST(FullySharded, TrainsReplicasAsTheModelAlone) {
  torch::manual_seed(9);
  Sequential net = testing::make_chain({5, 31, 17, 8, 3});
  const Batch batch = make_batch(12, 5, 3);
  for (const auto& [ranks, replicas] : {std::pair(2, 2), std::pair(3, 3), std::pair(4, 2)})
    for (const Options& options : all_kinds())
      expect_trains_as_alone(net, batch, ranks, Options(options).replicas(replicas), adam,
          concat(replicas, " replicas, ", text_of(options), " "));
}

// Each copy is a host.
TEST(ShardedOverHosts, AddsUpAsTheHierarchicalBackend) {
  torch::manual_seed(10);
  Sequential net = testing::make_chain({50, 64, 33, 10});
  net->to(torch::kFloat);
  const torch::Tensor input = torch::randn({12, 50}), target = torch::randn({12, 10});
  testing::run_group("hosts_0011", 4, [&](const ProcessGroup& group) {
    const Trained replicated = train_replicated(net, group, input, target, adam);
    const Options options = small_units().replicas(2);
    expect_as(
        train_sharded(testing::copy_of(net), group, options, input, target, adam), replicated, 0);
  });
}

TEST(FullySharded, RefusesReplicasThatDoNotDivideTheRanks) {
  testing::run_ranks(3, [](const ProcessGroup& group) {
    Sequential net(Linear(4, 3));
    EXPECT_THAT(message_of<InvalidArgument>([&] { Sharded(net, group, Options().replicas(2)); }),
        HasSubstr("3 ranks cannot share 2 replicas equally"));
  });
}

TEST(FullySharded, EveryRankTakesRankZerosParametersAndBuffers) {
  for (const int replicas : {1, 3})
    testing::run_ranks(3, [&](const ProcessGroup& group) {
      Sequential net(Linear(4, 4), torch::nn::BatchNorm1d(4));
      {
        const torch::NoGradGuard no_gradients;
        for (auto& parameter : net->parameters()) parameter.fill_(group.rank() + 1);
        net->named_buffers()["1.running_mean"].fill_(group.rank() + 10);
      }
      testing::bring_here(*net);
      Sharded model(net, group, small_units().replicas(replicas));
      EXPECT_TRUE(torch::all(net->named_buffers()["1.running_mean"] == 10).item<bool>());
      model(testing::here(torch::full({2, 4}, static_cast<double>(group.rank()), torch::kFloat)));
      net->named_buffers()["1.running_mean"].fill_(group.rank() + 20);
      model(testing::here(torch::zeros({2, 4})));  // from rank 0's 20 on
      const auto whole = model.whole();
      for (const auto& parameter : net->parameters())
        EXPECT_TRUE(torch::all(parameter == 1).item<bool>());
      const torch::Tensor mean = net->named_buffers()["1.running_mean"];
      const torch::Tensor all = torch::empty({3, 4}, mean.options());
      group.all_gather(all, mean).wait();
      EXPECT_TRUE(torch::equal(all[1], all[0]) && torch::equal(all[2], all[0]));
    });
}

TEST(FullySharded, SynchronisesBatchNorms) {
  torch::manual_seed(3);
  Sequential net(Linear(4, 6), torch::nn::BatchNorm1d(6), Tanh(), Linear(6, 2));
  net->to(torch::kDouble);
  expect_trains_as_alone(
      net, make_batch(12, 4, 2), 3, small_units().sync_batch_norm(true), sgd, "");
}

TEST(FullySharded, TrainsChannelsLastWeightsInTheOrderOfTheirMemory) {
  torch::manual_seed(4);
  Sequential net(Linear(4, 6), Tanh(), Linear(6, 2));
  net->to(torch::kDouble);
  torch::Tensor weight = net->parameters()[0];
  weight.set_data(weight.detach().t().contiguous().t());
  const auto strides = weight.strides().vec();
  expect_trains_as_alone(net, make_batch(8, 4, 2), 2, small_units(), adam, "");
  testing::run_ranks(2, [&](const ProcessGroup& group) {
    const Sequential copy = testing::copy_of(net);
    copy->parameters()[0].set_data(testing::here(weight.detach().clone()));
    const Sharded model(copy, group, small_units());
    EXPECT_EQ(copy->parameters()[0].strides().vec(), strides);
  });
}

// Parameters that several units have, that are not trained, or that are used twice.

/// A linear layer whose weight is that of another one, transposed.
struct TiedImpl : torch::nn::Module {
  explicit TiedImpl(const Linear& first) { weight = register_parameter("weight", first->weight); }
  torch::Tensor forward(const torch::Tensor& input) { return torch::matmul(input, weight); }
  torch::Tensor weight;
};
TORCH_MODULE(Tied);

/// Gives parameters values that are the same each time, which a generator of several threads would
/// not do.
void fill(torch::nn::Module& net) {
  const torch::NoGradGuard no_gradients;
  for (auto& parameter : net.parameters())
    parameter.copy_(
        torch::arange(parameter.numel()).mul(1.7).sin().mul(0.3).reshape(parameter.sizes()));
}

/// Gives a net such values, and brings it here.
Sequential filled(Sequential net) {
  net->to(torch::kDouble);
  fill(*net);
  testing::bring_here(*net);
  return net;
}

/// A net whose first and last layers share a weight; one layer between is called twice, another is
/// frozen.
Sequential make_shared_net() {
  Linear first(4, 9), frozen(9, 9), twice(9, 9);
  for (auto& parameter : frozen->parameters()) parameter.set_requires_grad(false);
  return filled(
      Sequential(first, Tanh(), twice, Tanh(), frozen, Tanh(), twice, Linear(9, 9), Tied(first)));
}

TEST(FullySharded, TrainsTiedFrozenAndTwiceUsedParameters) {
  torch::manual_seed(6);
  const Batch batch = make_batch(12, 4, 4);
  const Trained alone =
      train_alone(make_shared_net(), testing::here(batch.input), testing::here(batch.target), sgd);
  for (const Options& options : all_kinds()) {
    const ::testing::ScopedTrace trace(__FILE__, __LINE__, text_of(options));
    testing::run_ranks(3, [&](const ProcessGroup& group) {
      expect_as(train_sharded(make_shared_net(), group, options, batch.input, batch.target, sgd),
          alone, 1e-12);
    });
  }
}

/// Trains in steps of two batches each, clipped, of a net whose parameters are tied, frozen and
/// used twice; returns their moving averages. `pass` makes the gradients of a batch.
std::vector<torch::Tensor> averages_of_clipped(const std::vector<torch::Tensor>& parameters,
    const ProcessGroup& group, const std::function<void(int part)>& pass) {
  const auto optimizer = adam(parameters);
  std::vector<torch::Tensor> averages;
  for (const torch::Tensor& parameter : parameters) averages.push_back(parameter.detach().clone());
  for (int step = 0; step < kSteps; ++step) {
    optimizer->zero_grad();
    for (const int part : {0, 1}) pass(part);
    clip_grad_norm(parameters, 0.01, group);
    optimizer->step();
    for (std::size_t index = 0; index < averages.size(); ++index)
      averages[index].lerp_(parameters[index].detach(), 0.2);
  }
  return averages;
}

/// Expects that a rank's parts are those of whole tensors, by the parameters' names.
void expect_parts(const std::vector<ParameterPart>& parts, const std::vector<torch::Tensor>& values,
    const std::map<std::string, torch::Tensor>& whole) {
  for (std::size_t index = 0; index < parts.size(); ++index) {
    const torch::Tensor own = values[index].detach();
    expect_close(own.flatten(),
        whole.at(parts[index].name).flatten().narrow(0, parts[index].begin, own.numel()), 1e-12,
        parts[index].name);
  }
}

TEST(FullySharded, AccumulatesClipsAndAverages) {
  torch::manual_seed(9);
  const Batch batches[] = {make_batch(24, 4, 4), make_batch(24, 4, 4)};
  Sequential net = make_shared_net();
  const auto own = distinct(net->parameters());
  const auto averages = averages_of_clipped(own, ProcessGroup(), [&](int part) {
    mean_loss(net->forward(testing::here(batches[part].input)), testing::here(batches[part].target))
        .backward();
  });
  std::map<std::string, torch::Tensor> expected, expected_averages;
  for (const auto& named : net->named_parameters()) {
    for (std::size_t index = 0; index < own.size(); ++index) {
      if (!own[index].is_same(named.value())) continue;
      expected[named.key()] = own[index].detach();
      expected_averages[named.key()] = averages[index];
    }
  }
  for (const int ranks : numbers_of_ranks()) {
    for (const bool reduces_once : {false, true}) {
      testing::run_ranks(ranks, [&](const ProcessGroup& group) {
        Sharded model(make_shared_net(), group, small_units());
        const auto found = averages_of_clipped(model.parameters(), group, [&](int part) {
          std::optional<LocalGradients> local;
          if (reduces_once && part == 0) local.emplace(model.no_sync());
          mean_loss(model(share_here(batches[part].input, group)),
              share_here(batches[part].target, group))
              .backward();
        });
        expect_parts(model.parts(), model.parameters(), expected);
        expect_parts(model.parts(), found, expected_averages);
      });
    }
  }
}

TEST(FullySharded, GathersATiedWeightForThoseThatUseItAlone) {
  testing::run_ranks(2, [](const ProcessGroup& group) {
    const Sequential net = make_shared_net();
    const Sharded model(net, group, small_units());
    EXPECT_EQ(model.report().units, 6U);
    std::vector<std::string> names;
    for (const ParameterPart& part : model.parts()) names.push_back(part.name);
    EXPECT_EQ(std::ranges::count(names, "8.weight"), 0);
  });
}

// A weight that a layer hands on to others.

using Tensors = std::vector<torch::Tensor>;

struct WeightFirstImpl : torch::nn::Module {
  WeightFirstImpl() { weight = register_parameter("weight", torch::empty({5, 9})); }
  Tensors forward(const torch::Tensor& input) { return {input.matmul(weight), weight}; }
  torch::Tensor weight;
};
TORCH_MODULE(WeightFirst);

struct WeightBetweenImpl : torch::nn::Module {
  Tensors forward(const Tensors& values) { return {layer(values[0]).tanh(), values[1]}; }
  Linear layer = register_module("layer", Linear(9, 9));
};
TORCH_MODULE(WeightBetween);

struct WeightLastImpl : torch::nn::Module {
  torch::Tensor forward(const Tensors& values) { return layer(values[0].matmul(values[1].t())); }
  Linear layer = register_module("layer", Linear(5, 3));
};
TORCH_MODULE(WeightLast);

Sequential make_handing_net() {
  return filled(
      Sequential(WeightFirst(), WeightBetween(), WeightBetween(), WeightBetween(), WeightLast()));
}

TEST(FullySharded, KeepsAWeightThatALayerHandsOn) {
  torch::manual_seed(10);
  const Batch batch = make_batch(12, 5, 3);
  const Trained alone = train_alone(
      make_handing_net(), testing::here(batch.input), testing::here(batch.target), adam);
  for (const Reshard reshard : {Reshard::kAfterForward, Reshard::kNever}) {
    testing::run_ranks(3, [&](const ProcessGroup& group) {
      const auto sharded = train_sharded(make_handing_net(), group, small_units().reshard(reshard),
          batch.input, batch.target, adam);
      expect_as(sharded, alone, 1e-12);
    });
  }
}

TEST(FullySharded, LendsMemoryToParametersOfItsTypeAlone) {
  torch::manual_seed(11);
  const auto narrow = [](const torch::Tensor& values) { return values.to(torch::kFloat); };
  Linear wide(5, 40);
  wide->to(torch::kDouble);
  Sequential net(wide, torch::nn::Functional(narrow), Linear(40, 3), Linear(3, 3));
  Batch batch = make_batch(12, 5, 3);
  batch.target = batch.target.to(torch::kFloat);
  expect_trains_as_alone(net, batch, 2, small_units(), sgd, "", 1e-5);
}

// Parameters that are handed on.

using Flow = std::vector<torch::Tensor>;

/// An embedding, or a product that is one, whose weight goes on beside what it computes.
struct FirstImpl : torch::nn::Module {
  FirstImpl(std::int64_t words, std::int64_t width, bool multiplies) : multiplies(multiplies) {
    weight = register_parameter("weight", torch::empty({words, width}));
  }
  Flow forward(const torch::Tensor& input) {
    return {multiplies ? torch::matmul(input, weight) : torch::embedding(weight, input.argmax(1)),
        weight.view_as(weight)};
  }
  bool multiplies;
  torch::Tensor weight;
};
TORCH_MODULE(First);

struct BetweenImpl : torch::nn::Module {
  explicit BetweenImpl(std::int64_t width) {
    linear = register_module("linear", Linear(width, width));
  }
  Flow forward(const Flow& flow) {
    const torch::Tensor hidden = torch::tanh(linear(flow[0]));
    if (in_backward && hidden.requires_grad())
      hidden.register_hook([this](const torch::Tensor&) { in_backward(); });
    return {hidden, flow[1]};
  }
  Linear linear{nullptr};
  std::function<void()> in_backward;
};
TORCH_MODULE(Between);

struct LastImpl : torch::nn::Module {
  torch::Tensor forward(const Flow& flow) { return torch::matmul(flow[0], flow[1].t()); }
};
TORCH_MODULE(Last);

void fill(const torch::Tensor& parameter) {
  const torch::NoGradGuard no_gradients;
  const torch::Tensor numbers = torch::arange(parameter.numel(), parameter.options());
  torch::Tensor(parameter).copy_(numbers.mul(1.7).sin().mul(0.3).reshape(parameter.sizes()));
}

/// A net whose first weight is its last one, three layers in between, all of doubles.
struct HandingNet {
  explicit HandingNet(std::int64_t words, std::int64_t width, bool multiplies = true)
      : between(width) {
    chain = Sequential(
        First(words, width, multiplies), between, Between(width), Between(width), Last());
    chain->to(torch::kDouble);
    for (const auto& parameter : chain->parameters()) fill(parameter);
    testing::bring_here(*chain);
  }
  Between between;
  Sequential chain;
};

TEST(FullySharded, TrainsAParameterThatIsHandedOn) {
  torch::manual_seed(12);
  const Batch batch = make_batch(12, 16, 16);
  for (const bool multiplies : {false, true}) {
    const HandingNet serial(16, 8, multiplies);
    const Trained alone =
        train_alone(serial.chain, testing::here(batch.input), testing::here(batch.target), adam);
    for (const Options& options : all_kinds()) {
      const ::testing::ScopedTrace trace(__FILE__, __LINE__, text_of(options));
      for (const int ranks : {2, 3}) {  // whose shards fill the weight, or have room at the end
        testing::run_ranks(ranks, [&](const ProcessGroup& group) {
          const HandingNet net(16, 8, multiplies);
          expect_as(train_sharded(net.chain, group, options, batch.input, batch.target, adam),
              alone, 1e-12);
        });
      }
    }
  }
}

TEST(FullySharded, AccumulatesAParameterThatIsHandedOn) {
  torch::manual_seed(13);
  const torch::Tensor input = torch::randn({12, 16}, torch::kDouble);
  HandingNet serial(16, 8);
  serial.chain->forward(testing::here(input)).square().sum().backward();
  const torch::Tensor expected = serial.chain->parameters().front().grad();
  testing::run_ranks(2, [&](const ProcessGroup& group) {
    const HandingNet net(16, 8);
    Sharded model(net.chain, group, small_units());
    const torch::Tensor own = share_here(input, group);
    for (int half = 0; half < 2; ++half) {
      std::optional<LocalGradients> local;
      if (half == 0) local.emplace(model.no_sync());
      (model(own.narrow(0, 3 * half, 3)).square().sum() * group.size()).backward();
      if (local) EXPECT_FALSE(model.parameters().front().grad().defined());
    }
    const ParameterPart part = model.parts().front();
    expect_close(part.tensor.grad().flatten(),
        expected.flatten().narrow(0, part.begin, part.tensor.numel()), 1e-12, "weight");
  });
}

/// Hands on a weight that it does not use, beside a bias that it does.
struct ShelfImpl : torch::nn::Module {
  ShelfImpl() {
    weight = register_parameter("weight", torch::empty({16, 8}));
    bias = register_parameter("bias", torch::empty({8}));
  }
  Flow forward(const torch::Tensor& input) {
    return {input.narrow(1, 0, 8) + bias, weight.view_as(weight)};
  }
  torch::Tensor weight, bias;
};
TORCH_MODULE(Shelf);

// The handed-on one is not averaged before the others that are gathered with it have a gradient of
// this pass.
TEST(FullySharded, AccumulatesBesideAParameterThatIsHandedOn) {
  torch::manual_seed(14);
  const torch::Tensor input = torch::randn({12, 16}, torch::kDouble);
  Sequential alone = filled(Sequential(Shelf(), Between(8), Last()));
  alone->forward(testing::here(input)).square().sum().backward();
  const auto expected = alone->named_parameters();
  testing::run_ranks(2, [&](const ProcessGroup& group) {
    Sharded model(filled(Sequential(Shelf(), Between(8), Last())), group, small_units());
    const torch::Tensor own = share_here(input, group);
    for (int half = 0; half < 2; ++half) {
      std::optional<LocalGradients> local;
      if (half == 0) local.emplace(model.no_sync());
      (model(own.narrow(0, 3 * half, 3)).square().sum() * group.size()).backward();
    }
    for (const ParameterPart& part : model.parts())
      if (part.tensor.defined())
        expect_close(part.tensor.grad().flatten(),
            expected[part.name].grad().flatten().narrow(0, part.begin, part.tensor.numel()), 1e-12,
            part.name);
  });
}

/// An embedding, and a layer that backward computes again.
struct LookedUpImpl : torch::nn::Module {
  LookedUpImpl() {
    weight = register_parameter("weight", torch::empty({16, 8}));
    layer = register_module("layer", Linear(8, 8));
  }
  torch::Tensor forward(const torch::Tensor& input) {
    return checkpoint(torch::nn::AnyModule(layer), torch::embedding(weight, input.argmax(1)));
  }
  torch::Tensor weight;
  Linear layer{nullptr};
};
TORCH_MODULE(LookedUp);

TEST(FullySharded, KeepsWhatBackwardReadsBesideAnEmbedding) {
  torch::manual_seed(15);
  const Batch batch = make_batch(12, 16, 3);
  const auto make = [] { return filled(Sequential(LookedUp(), Linear(8, 3))); };
  const Trained alone =
      train_alone(make(), testing::here(batch.input), testing::here(batch.target), sgd);
  testing::run_ranks(2, [&](const ProcessGroup& group) {
    expect_as(
        train_sharded(make(), group, small_units(), batch.input, batch.target, sgd), alone, 1e-12);
  });
}

/// An embedding, or a product that is one.
struct WordsImpl : torch::nn::Module {
  explicit WordsImpl(bool multiplies) : multiplies(multiplies) {
    weight = register_parameter("weight", torch::empty({16, 8}));
  }
  torch::Tensor forward(const torch::Tensor& input) {
    return multiplies ? torch::matmul(input, weight) : torch::embedding(weight, input.argmax(1));
  }
  bool multiplies;
  torch::Tensor weight;
};
TORCH_MODULE(Words);

/// Four units, of which some are frozen.
Sequential make_words_net(bool multiplies, std::size_t frozen) {
  Sequential net(Words(multiplies), Linear(8, 8), Linear(8, 8), Linear(8, 3));
  for (std::size_t unit = 0; unit < frozen; ++unit)
    for (auto& parameter : net->ptr(unit)->parameters()) parameter.set_requires_grad(false);
  return filled(net);
}

TEST(FullySharded, GathersForBackwardWhatItReads) {
  torch::manual_seed(16);
  const Batch batch = make_batch(12, 16, 3);
  const auto expect_gathers = [&](bool multiplies, std::size_t frozen, std::int64_t gathers) {
    const ::testing::ScopedTrace trace(
        __FILE__, __LINE__, concat("multiplies ", multiplies, ", frozen ", frozen));
    const Trained alone = train_alone(make_words_net(multiplies, frozen),
        testing::here(batch.input), testing::here(batch.target), sgd);
    testing::run_ranks(2, [&](const ProcessGroup& group) {
      Sharded model(make_words_net(multiplies, frozen), group, small_units());
      model(share_here(batch.input, group)).sum().backward();
      EXPECT_EQ(model.report().gathers, gathers);
      expect_as(train_sharded(make_words_net(multiplies, frozen), group, small_units(), batch.input,
                    batch.target, sgd),
          alone, 1e-12);
    });
  };
  expect_gathers(/*multiplies=*/true, 0, 4 + 3);
  expect_gathers(/*multiplies=*/false, 0, 4 + 2);
  expect_gathers(/*multiplies=*/true, 2, 4 + 1);
}

/// An embedding whose rows go through a kernel of ours, or one of LibTorch's as on a device.
struct DroppedWordsImpl : WordsImpl {
  explicit DroppedWordsImpl(bool is_ours) : WordsImpl(/*multiplies=*/false), is_ours(is_ours) {}
  torch::Tensor forward(const torch::Tensor& input) {
    const torch::Tensor rows = WordsImpl::forward(input).to(torch::kFloat);
    const auto& kernel = *nn::fused::dropout_kernels().back();
    const torch::Tensor dropped = is_ours ? nn::fused::own_dropout(kernel, rows, 0.5, 7)
                                          : torch::dropout(rows, 0.5, /*train=*/true);
    return dropped.to(input.scalar_type());
  }
  bool is_ours;
};
TORCH_MODULE(DroppedWords);

// Ranks may have other kernels than each other, but must make the same collectives.
TEST(FullySharded, GathersForBackwardTheSameWithOurKernels) {
  const Batch batch = make_batch(12, 16, 3);
  testing::run_ranks(2, [&](const ProcessGroup& group) {
    const torch::Tensor input = share_here(batch.input, group);
    for (const bool is_ours : {false, true}) {
      if (is_ours && !input.is_cpu()) continue;  // Our kernels are the processor's.
      Sharded model(filled(Sequential(DroppedWords(is_ours), Linear(8, 8), Linear(8, 3))), group,
          small_units());
      model(input).sum().backward();
      EXPECT_EQ(model.report().gathers, 3 + 1) << (is_ours ? "ours" : "LibTorch's");
    }
  });
}

// Not only when backward comes to the unit that has it: its whole gradient would wait until then.
TEST(FullySharded, AveragesAHandedOnGradientBeforeTheUnitsBetween) {
  constexpr std::int64_t kWords = 512, kWidth = 64, kWeight = kWords * kWidth * 8;
  testing::run_ranks(2, [](const ProcessGroup& group) {
    for (const bool checkpoint : {false, true}) {
      HandingNet net(kWords, kWidth);
      Sharded model(net.chain, group, small_units().checkpoint(checkpoint));
      const torch::Tensor input = testing::here(torch::ones({2, kWords}, torch::kDouble));
      bool was_there = false;
      net.between->in_backward = [&] { was_there = model.parameters().front().grad().defined(); };
      const MemoryMeter meter;
      model(input).sum().backward();
      EXPECT_TRUE(was_there);
      // The whole weight, one whole gradient, the part of it, and other layers; a second whole
      // gradient would make it 4.
      const auto most = static_cast<double>(meter.total().peak) / kWeight;
      const std::string backend = group.backend_name();
      const bool is_copied = backend == "gloo" || backend == "hierarchical" || !input.is_cpu();
      if (!is_copied) EXPECT_LT(most, 3.7);
    }
  });
}

TEST(FullySharded, HasAWholeEmbeddingInBackwardOnlyWhereItIsRead) {
  testing::run_ranks(2, [](const ProcessGroup& group) {
    for (const bool multiplies : {false, true}) {
      const HandingNet net(16, 8, multiplies);
      const torch::Tensor weight = net.chain->parameters().front();
      Sharded model(net.chain, group, small_units());
      bool was_whole = false;
      weight.register_hook([&](const torch::Tensor&) {
        try {
          was_whole = weight.storage().data() != nullptr;
        } catch (const c10::Error&) {
          was_whole = false;
        }
      });
      model(testing::here(torch::ones({2, 16}, torch::kDouble))).sum().backward();
      EXPECT_EQ(was_whole, multiplies);
    }
  });
}

TEST(FullySharded, InitialisesSomeParametersAtATime) {
  testing::run_ranks(2, [](const ProcessGroup& group) {
    const HandingNet expected(16, 8), net(16, 8);
    const torch::NoGradGuard no_gradients;
    for (auto& parameter : net.chain->parameters()) parameter.zero_();
    std::vector<std::size_t> counts;
    Sharded model(net.chain, group, small_units().param_init_fn([&](const NamedTensors& some) {
      counts.push_back(some.size());
      for (const auto& [name, parameter] : some) fill(parameter);
    }));
    if (group.rank() == 0) {
      EXPECT_THAT(counts, ElementsAre(1U, 2U, 2U, 2U));
    } else {
      EXPECT_TRUE(counts.empty());
    }
    model.unwrap();
    EXPECT_EQ(values_of(*net.chain).size(), 7U);
    for (const auto& [name, value] : values_of(*expected.chain))
      EXPECT_TRUE(torch::equal(values_of(*net.chain).at(name), value)) << name;
  });
}

TEST(FullySharded, RefusesWhatCannotBeInitialised) {
  testing::run_ranks(2, [](const ProcessGroup& group) {
    const HandingNet net(16, 8);
    const auto options = small_units().param_init_fn(
        [](const NamedTensors& some) { throw DataError("no " + some.front().first); });
    EXPECT_THAT(
        message_of<Error>([&] { Sharded(net.chain, group, options); }), HasSubstr("no 0.weight"));
  });
}

// A module that is no chain.

struct BranchesImpl : torch::nn::Module {
  BranchesImpl() {
    left = register_module("left", Linear(4, 3));
    right = register_module("right", Linear(4, 3));
    to(torch::kDouble);
    const torch::NoGradGuard no_gradients;
    for (auto& parameter : parameters()) parameter.fill_(0.25);
  }
  std::pair<torch::Tensor, torch::Tensor> forward(
      const torch::Tensor& input, bool uses_right = true) {
    return {left(input), uses_right ? right(input) : input};
  }
  Linear left{nullptr}, right{nullptr};
};
TORCH_MODULE(Branches);

torch::Tensor loss_of(const std::pair<torch::Tensor, torch::Tensor>& output) {
  return (output.first * output.second).mean();
}

TEST(FullySharded, TakesAModuleThatIsNoChain) {
  torch::manual_seed(7);
  const torch::Tensor input = torch::randn({6, 4}, torch::kDouble);
  Branches serial;
  testing::bring_here(*serial);
  const auto optimizer = adam(serial->parameters());
  const auto losses = train(*optimizer, kSteps, [&] {
    const torch::Tensor loss = loss_of(serial(testing::here(input)));
    loss.backward();
    return loss;
  });
  testing::run_ranks(2, [&](const ProcessGroup& group) {
    Branches net;
    testing::bring_here(*net);
    FullyShardedDataParallel model(net, group);
    const auto of_parts = adam(model.parameters());
    const auto own = train(*of_parts, kSteps, [&] {
      const torch::Tensor loss = loss_of(model(share_here(input, group)));
      loss.backward();
      return mean_over(group, loss);
    });
    for (int step = 0; step < kSteps; ++step)
      EXPECT_NEAR(
          own[static_cast<std::size_t>(step)], losses[static_cast<std::size_t>(step)], 1e-12);
  });
}

struct WithEmptyImpl : torch::nn::Module {
  WithEmptyImpl() {
    layer = register_module("layer", Linear(4, 3));
    none = register_parameter("none", torch::zeros({0, 4}));
    to(torch::kDouble);
  }
  torch::Tensor forward(const torch::Tensor& input) { return layer(input) + none.sum(); }
  Linear layer{nullptr};
  torch::Tensor none;
};
TORCH_MODULE(WithEmpty);

// A snapshot is of the parts that are there.
TEST(FullySharded, HasAPartOfAParameterWithoutElements) {
  testing::run_ranks(2, [&](const ProcessGroup& group) {
    WithEmpty net;
    testing::bring_here(*net);
    FullyShardedDataParallel model(net, group);
    const auto optimizer = adam(model.parameters());
    model(testing::here(torch::ones({2, 4}, torch::kDouble))).sum().backward();
    optimizer->step();
    const auto parts = model.parts();
    const auto found = std::ranges::count(parts, "none", &ParameterPart::name);
    EXPECT_EQ(found, group.rank() == 0 ? 1 : 0);
  });
}

TEST(FullySharded, RefusesTwoParametersInOneMemory) {
  testing::run_ranks(2, [](const ProcessGroup& group) {
    Branches net;
    testing::bring_here(*net);
    net->right->weight.set_data(net->left->weight.detach());
    EXPECT_THAT(message_of<InvalidArgument>([&] { FullyShardedDataParallel(net, group); }),
        HasSubstr("left.weight and right.weight are two tensors in one memory"));
  });
}

TEST(FullySharded, RefusesToLeaveAGradientOut) {
  testing::run_ranks(2, [](const ProcessGroup& group) {
    Branches net;
    testing::bring_here(*net);
    FullyShardedDataParallel model(net, group);
    const auto input = testing::here(torch::ones({2, 4}, torch::kDouble));
    const std::string reason =
        message_of<Error>([&] { model(input, false).first.sum().backward(); });
    EXPECT_THAT(reason, HasSubstr("no gradient to right.weight, right.bias; freeze"));
    EXPECT_THAT(message_of<Error>([&] { model(input); }), HasSubstr("ended with an exception"));
  });
}

// Passes: accumulation, several forwards, gradients that are kept.

/// A chain, its copy with whole parameters on each rank, and this rank's input.
struct Pair {
  explicit Pair(const ProcessGroup& group, const Options& options = small_units())
      : net(testing::make_chain({3, 5, 4, 2})), serial(alike(net)), model(net, group, options) {}

  static Sequential alike(Sequential net) {
    const torch::NoGradGuard no_gradients;
    double seed = 0;
    for (auto& parameter : net->parameters())
      parameter.copy_(
          torch::arange(parameter.numel()).mul(1.7).add(++seed).sin().reshape(parameter.sizes()));
    testing::bring_here(*net);
    return testing::copy_of(net);
  }

  /// Expects that the parts have the average of what the ranks' copies have.
  void expect_gradients(const ProcessGroup& group, const std::string& what = "") {
    const auto whole = serial->named_parameters();
    for (const auto& parameter : whole) {
      const torch::Tensor average = parameter.value().grad().clone();
      group.all_reduce(average, ReduceOp::kMean).wait();
      for (const ParameterPart& part : model.parts()) {
        if (part.name != parameter.key()) continue;
        const torch::Tensor expected =
            average.flatten().narrow(0, part.begin, part.tensor.numel()).view(part.tensor.sizes());
        expect_close(part.tensor.grad(), expected, 1e-13, concat(what, part.name));
      }
    }
  }

  void zero_grad(bool set_to_none = true) {
    serial->zero_grad(set_to_none);
    for (const torch::Tensor& part : model.parameters()) {
      if (set_to_none) {
        part.mutable_grad().reset();
      } else if (part.grad().defined()) {
        part.mutable_grad().zero_();
      }
    }
  }

  Sequential net, serial;
  Sharded model;
};

torch::Tensor input_of(const ProcessGroup& group, double number) {
  const torch::Tensor values = torch::arange(6, torch::kDouble) + number + 3 * group.rank();
  return testing::here(values.sin().reshape({2, 3}));
}

TEST(FullySharded, AccumulatesOverPasses) {
  for (const Options& options : all_kinds()) {
    const ::testing::ScopedTrace trace(__FILE__, __LINE__, text_of(options));
    testing::run_ranks(3, [&](const ProcessGroup& group) {
      Pair pair(group, options);
      for (int step = 0; step < 3; ++step) {
        pair.zero_grad(step != 1);
        for (int pass = 0; pass < 3; ++pass) {
          pair.model(input_of(group, pass)).square().sum().backward();
          pair.serial->forward(input_of(group, pass)).square().sum().backward();
        }
        pair.expect_gradients(group, "reduced each time: ");
      }
    });
  }
}

TEST(FullySharded, AccumulatesOnEachRankWithoutSynchronisation) {
  for (const Options& options : all_kinds()) {
    const ::testing::ScopedTrace trace(__FILE__, __LINE__, text_of(options));
    testing::run_ranks(3, [&](const ProcessGroup& group) {
      Pair pair(group, options);
      for (const bool afterwards : {false, true}) {
        pair.zero_grad();
        for (int pass = 0; pass < 3; ++pass) {
          std::optional<LocalGradients> local;
          if (afterwards || pass < 2) local.emplace(pair.model.no_sync());
          pair.model(input_of(group, pass)).square().sum().backward();
          pair.serial->forward(input_of(group, pass)).square().sum().backward();
          if (local) {
            for (const auto& part : pair.model.parameters()) EXPECT_FALSE(part.grad().defined());
          }
        }
        if (afterwards) pair.model.reduce_accumulated();
        pair.expect_gradients(group);
      }
    });
  }
}

TEST(FullySharded, TakesSeveralForwardsBeforeBackward) {
  for (const Options& options : all_kinds()) {
    const ::testing::ScopedTrace trace(__FILE__, __LINE__, text_of(options));
    testing::run_ranks(2, [&](const ProcessGroup& group) {
      Pair pair(group, options);
      const auto of_both = [&](auto&& model) {
        const torch::Tensor a = model(input_of(group, 1)), b = model(input_of(group, 2));
        return (a * b).sum();
      };
      const auto alone = [&](const torch::Tensor& input) { return pair.serial->forward(input); };
      of_both(pair.model).backward();
      of_both(alone).backward();
      pair.expect_gradients(group, "one backward: ");

      const torch::Tensor a = pair.model(input_of(group, 3)).sum();
      const torch::Tensor b = pair.model(input_of(group, 4)).square().sum();
      {
        const torch::NoGradGuard no_gradients;
        pair.model(input_of(group, 5));
      }
      a.backward();
      b.backward();
      alone(input_of(group, 3)).sum().backward();
      alone(input_of(group, 4)).square().sum().backward();
      pair.expect_gradients(group, "two: ");
    });
  }
}

TEST(FullySharded, LeavesAGradientThatACallerKeeps) {
  testing::run_ranks(2, [](const ProcessGroup& group) {
    Pair pair(group);
    pair.model(input_of(group, 1)).sum().backward();
    const torch::Tensor kept = pair.model.parameters().front().grad();
    const torch::Tensor before = kept.clone();
    pair.zero_grad();
    pair.model(input_of(group, 2)).square().sum().backward();
    pair.serial->forward(input_of(group, 2)).square().sum().backward();
    EXPECT_TRUE(torch::equal(kept, before));
    pair.expect_gradients(group);
  });
}

// Of a weight that fills its shards. Who has its gradient's memory may differ between ranks; how
// they average it must not.
TEST(FullySharded, AveragesAGradientWhoseMemoryOneRankKeeps) {
  testing::run_ranks(2, [](const ProcessGroup& group) {
    Sequential net = filled(Sequential(Words(true))), serial = filled(Sequential(Words(true)));
    Sharded model(net, group, small_units());
    std::vector<torch::Tensor> kept, before;
    net->parameters().front().register_hook([&](const torch::Tensor& gradient) {
      if (group.rank() == 0) return;
      kept.push_back(gradient.detach());
      before.push_back(gradient.clone());
    });
    for (int pass = 0; pass < 2; ++pass) {
      const auto input = testing::here(
          torch::arange(32, torch::kDouble).add(pass + 7 * group.rank()).sin().view({2, 16}));
      model(input).square().sum().backward();
      serial->forward(input).square().sum().backward();
    }
    const torch::Tensor average = serial->parameters().front().grad().clone();
    group.all_reduce(average, ReduceOp::kMean).wait();
    const ParameterPart part = model.parts().front();
    EXPECT_EQ(2 * part.tensor.numel(), average.numel());
    expect_close(part.tensor.grad().flatten(),
        average.flatten().narrow(0, part.begin, part.tensor.numel()), 1e-12, part.name);
    EXPECT_EQ(kept.size(), group.rank() == 0 ? 0U : 2U);
    for (std::size_t pass = 0; pass < kept.size(); ++pass)
      EXPECT_TRUE(torch::equal(kept[pass], before[pass]));
  });
}

// A rank that has ended goes on with a loss of 0: its part is gathered and stepped to the end.
TEST(FullySharded, TrainsOnUnequalNumbersOfBatchesAsJoinDoes) {
  constexpr int kBatches[] = {4, 2, 5};
  for (const int ranks : {2, 3}) {
    testing::run_ranks(ranks, [&](const ProcessGroup& group) {
      Pair pair(group);
      const int own = kBatches[group.rank()];
      const auto value_of = [&](auto& model, int step) {
        return model(input_of(group, std::min(step, own - 1))).square().sum();
      };
      DistributedDataParallel<Sequential> replicated(pair.serial, group);
      const auto optimizer = sgd(pair.serial->parameters()),
                 of_parts = sgd(pair.model.parameters());
      replicated.join([&] {
        for (int step = 0; step < own; ++step) {
          optimizer->zero_grad();
          value_of(replicated, step).backward();
          optimizer->step();
        }
      });
      const torch::Tensor most = testing::here(torch::tensor({own}));
      group.all_reduce(most, ReduceOp::kMax).wait();
      for (int step = 0; step < most.item<int>(); ++step) {
        of_parts->zero_grad();
        (value_of(pair.model, step) * (step < own ? 1 : 0)).backward();
        of_parts->step();
      }
      const auto whole = pair.model.whole();
      const auto expected = pair.serial->named_parameters();
      for (const auto& parameter : pair.net->named_parameters())
        expect_close(parameter.value(), expected[parameter.key()], 1e-12, parameter.key());
    });
  }
}

TEST(FullySharded, GivesGradientsOfInputsToTheirCaller) {
  testing::run_ranks(2, [](const ProcessGroup& group) {
    Pair pair(group);
    const torch::Tensor input = input_of(group, 1).requires_grad_();
    const auto ours = torch::autograd::grad({pair.model(input).square().sum()}, {input});
    const auto alone = torch::autograd::grad({pair.serial->forward(input).square().sum()}, {input});
    expect_close(ours[0], alone[0], 1e-13, "input");
    for (const auto& part : pair.model.parameters()) EXPECT_FALSE(part.grad().defined());
    pair.model(input_of(group, 2)).sum().backward();  // the next pass is as any other
    pair.serial->forward(input_of(group, 2)).sum().backward();
    pair.expect_gradients(group);
  });
}

std::optional<c10::Stream> new_stream() {
  if (!testing::on_devices()) return std::nullopt;
  return c10::impl::VirtualGuardImpl(testing::device_type())
      .getStreamFromGlobalPool(testing::this_device());
}

TEST(FullySharded, FollowsItsCallerFromStreamToStream) {
  constexpr int kPasses = 20;  // a mistake may show in some orders of streams alone
  testing::run_ranks(2, [](const ProcessGroup& group) {
    Pair pair(group);
    const auto optimizer = sgd(pair.model.parameters()), alone = sgd(pair.serial->parameters());
    const torch::Tensor input = testing::here(torch::ones({64, 3}, torch::kDouble));  // on all
    for (int step = 0; step < kPasses; ++step) {
      alone->zero_grad();
      pair.serial->forward(input).square().mean().backward();
      alone->step();
    }
    for (int step = 0; step < kPasses; ++step) {
      const c10::OptionalStreamGuard stream(new_stream());
      optimizer->zero_grad();
      pair.model(testing::here(torch::ones({64, 3}, torch::kDouble))).square().mean().backward();
      optimizer->step();
    }
    const auto whole = pair.model.whole();
    const auto expected = pair.serial->named_parameters();
    for (const auto& parameter : pair.net->named_parameters())
      expect_close(parameter.value(), expected[parameter.key()], 1e-12, parameter.key());
  });
}

TEST(FullySharded, ClipsByTheNormOfAllParts) {
  for (const int replicas : {1, 2})
    testing::run_ranks(4, [&](const ProcessGroup& group) {
      Pair pair(group, small_units().replicas(replicas));
      const torch::Tensor input = testing::here(torch::ones({2, 3}, torch::kDouble));  // on all
      pair.model(input).square().sum().backward();
      pair.serial->forward(input).square().sum().backward();
      const double norm = clip_grad_norm(pair.model.parameters(), 0.5, pair.model.shard_group());
      EXPECT_NEAR(clip_grad_norm(pair.serial->parameters(), 0.5), norm, 1e-12 * norm);
      EXPECT_GT(norm, 0.5);
      pair.expect_gradients(group);
    });
}

TEST(FullySharded, LoadsAndGivesWholeParameters) {
  testing::run_ranks(3, [](const ProcessGroup& group) {
    Pair pair(group);
    {
      const auto whole = pair.model.whole(/*keeps_changes=*/true);
      const torch::NoGradGuard no_gradients;
      for (auto& parameter : pair.net->parameters()) parameter.mul_(2);
    }
    {
      const auto whole = pair.model.whole();
      const torch::NoGradGuard no_gradients;
      for (auto& parameter : pair.net->parameters()) parameter.zero_();
    }
    const auto expected = pair.serial->named_parameters();
    std::size_t visited = 0;
    pair.model.visit_whole([&](const NamedTensors& unit) {
      for (const auto& entry : unit)
        EXPECT_TRUE(torch::equal(entry.second, 2 * expected[entry.first])) << entry.first;
      visited += unit.size();
    });
    EXPECT_EQ(visited, expected.size());
    pair.model.unwrap();
    for (const auto& parameter : pair.net->named_parameters())
      EXPECT_TRUE(torch::equal(parameter.value(), 2 * expected[parameter.key()]));
    EXPECT_THAT(message_of<InvalidArgument>([&] { pair.model(input_of(group, 1)); }),
        HasSubstr("was unwrapped"));
  });
}

TEST(FullySharded, RefusesWhatWouldLoseChangesOfWholeParameters) {
  testing::run_ranks(2, [](const ProcessGroup& group) {
    Pair pair(group);
    const torch::Tensor input = input_of(group, 1);
    const auto refusal = HasSubstr("inside of whole(true) would lose what was changed");
    {
      const auto whole = pair.model.whole(/*keeps_changes=*/true);
      {
        const torch::NoGradGuard no_gradients;
        for (auto& parameter : pair.net->parameters()) parameter.mul_(2);
        for (auto& parameter : pair.serial->parameters()) parameter.mul_(2);
        EXPECT_TRUE(torch::equal(pair.net->forward(input), pair.serial->forward(input)));
      }
      EXPECT_THAT(message_of<InvalidArgument>([&] { pair.model(input); }), refusal);
      EXPECT_THAT(message_of<InvalidArgument>([&] { auto other = pair.model.whole(); }), refusal);
      EXPECT_THAT(
          message_of<InvalidArgument>([&] { pair.net->forward(input).sum().backward(); }), refusal);
      for (const auto& parameter : pair.net->parameters())
        EXPECT_FALSE(parameter.grad().defined()) << "the next backward would add to it";
    }
    EXPECT_TRUE(torch::equal(pair.model(input), pair.serial->forward(input)));
  });
}

// Types in which parameters and gradients travel.

/// A net under autocast: layers that it casts, and some that it does not. None is used twice: how
/// often autocast casts it depends on the other ranks, which are threads and share its cache.
Sequential make_cast_net() {
  Sequential net(Linear(16, 64), Tanh(), torch::nn::LayerNorm(torch::nn::LayerNormOptions({64})),
      Linear(64, 48), torch::nn::BatchNorm1d(48), Tanh(), Tied(Linear(16, 48)), Linear(16, 5));
  fill(*net);
  torch::Tensor weight = net->named_parameters()["3.weight"];
  weight.set_data(weight.detach().t().contiguous().t());
  return net;
}

/// Trains under autocast, and evaluates without between forward and backward.
template <typename Model>
Trained train_cast(Model& model, const ProcessGroup& group,
    const std::vector<torch::Tensor>& parameters, const torch::Tensor& input) {
  torch::optim::SGD optimizer(parameters, torch::optim::SGDOptions(0.001));
  const torch::Tensor own = share_here(input, group);
  Trained trained;
  trained.losses = train(optimizer, 5, [&] {
    const torch::Tensor loss = [&] {
      const nn::Autocast shorter(torch::kCPU, torch::kBFloat16);
      return model(own).to(torch::kFloat).square().mean();
    }();
    {
      const torch::NoGradGuard no_gradients;
      model(own);
    }
    loss.backward();
    return mean_over(group, loss);
  });
  return trained;
}

TEST(GatheredCasts, HaveTheBitsOfAutocast) {
  const torch::Tensor input = torch::arange(12 * 16).mul(0.7).sin().view({12, 16});
  for (const Options& options : all_kinds()) {
    testing::run_ranks(3, [&](const ProcessGroup& group) {
      const bool is_exact = group.sums_in_rank_order();
      Sequential whole = make_cast_net(), net = make_cast_net();
      DistributedDataParallel<Sequential> replicated(whole, group);
      Trained expected = train_cast(replicated, group, distinct(whole->parameters()), input);
      expected.parameters = values_of(*whole);
      Sharded sharded(net, group, Options(options).casts(autocast_casts));
      Trained trained = train_cast(sharded, group, sharded.parameters(), input);
      if (is_exact) {
        net->eval();
        whole->eval();
        const torch::NoGradGuard no_gradients;
        EXPECT_TRUE(torch::equal(sharded(input), whole->forward(input))) << text_of(options);
        const nn::Autocast shorter(torch::kCPU, torch::kBFloat16);
        EXPECT_TRUE(torch::equal(sharded(input), whole->forward(input))) << text_of(options);
      }
      const auto scope = sharded.whole();
      trained.parameters = values_of(*net);
      expect_as(trained, expected, is_exact ? 0 : 1e-2, text_of(options) + ": ");
    });
  }
}

TEST(GatheredCasts, TakeHalfTheMemory) {
  testing::run_ranks(2, [](const ProcessGroup& group) {
    const auto peak_of = [&](const Options& options) {
      Sequential net(Linear(64, 64), Tanh(), Linear(64, 64), Tanh(), Linear(64, 64));
      Sharded model(net, group, options);
      const nn::Autocast shorter(torch::kCPU, torch::kBFloat16);
      model(torch::ones({2, 64})).sum().backward();
      return model.report().peak_of_wholes;
    };
    EXPECT_EQ(2 * peak_of(small_units().casts(autocast_casts)), peak_of(small_units()));
  });
}

/// A linear layer that reads its weight beside.
struct ReadingImpl : torch::nn::Module {
  ReadingImpl() { linear = register_module("linear", Linear(4, 4)); }
  torch::Tensor forward(const torch::Tensor& input) {
    return linear(input) + linear->weight.square().sum();
  }
  Linear linear{nullptr};
};
TORCH_MODULE(Reading);

TEST(GatheredCasts, AreNotReadAsWhatTheyAreNot) {
  testing::run_ranks(2, [](const ProcessGroup& group) {
    for (const bool casts : {true, false}) {
      Sequential net(Reading{});
      Options options;
      if (casts) options.casts(autocast_casts);
      Sharded model(net, group, options);
      const nn::Autocast shorter(torch::kCPU, torch::kBFloat16);
      const auto compute = [&] { model(torch::ones({2, 4})); };
      if (casts) {
        EXPECT_THAT(message_of<c10::Error>(compute), HasSubstr("but is read in its own"));
      } else {
        EXPECT_NO_THROW(compute());
      }
    }
  });
}

// With replicas, sums are rounded once more.
TEST(FullySharded, SendsGradientsInAShorterTypeAsDistributedDataParallel) {
  torch::manual_seed(12);
  Sequential net = testing::make_chain({50, 64, 33, 10});
  net->to(torch::kFloat);
  const torch::Tensor input = torch::randn({12, 50}), target = torch::randn({12, 10});
  const auto compare = [&](at::ScalarType type, const CommHook& hook, int ranks, int replicas) {
    testing::run_ranks(ranks, [&](const ProcessGroup& group) {
      const Sequential copy = testing::copy_of(net);
      DistributedDataParallel<Sequential> model(
          copy, group, DistributedDataParallelOptions().comm_hook(hook));
      Trained replicated =
          train_with(model, group, distinct(copy->parameters()), input, target, sgd, 5);
      replicated.parameters = values_of(*copy);
      const Options options = small_units().gradient_type(type).replicas(replicas);
      const bool is_exact = group.sums_in_rank_order() && replicas == 1;
      expect_as(train_sharded(testing::copy_of(net), group, options, input, target, sgd, 5),
          replicated, is_exact ? 0 : 1e-2);
    });
  };
  for (const auto& [ranks, replicas] : {std::pair(3, 1), std::pair(4, 2)}) {
    compare(torch::kHalf, fp16_compress_hook, ranks, replicas);
    compare(torch::kBFloat16, bf16_compress_hook, ranks, replicas);
  }
}

TEST(FullySharded, RefusesToSendGradientsInALongerType) {
  testing::run_ranks(2, [](const ProcessGroup& group) {
    Sequential net(Linear(4, 3));
    EXPECT_THAT(message_of<InvalidArgument>(
                    [&] { Sharded(net, group, Options().gradient_type(torch::kDouble)); }),
        HasSubstr("not as Double"));
  });
}

// Memory.

std::int64_t bytes_of(const std::vector<torch::Tensor>& tensors) {
  std::int64_t bytes = 0;
  for (const torch::Tensor& tensor : tensors) bytes += static_cast<std::int64_t>(tensor.nbytes());
  return bytes;
}

TEST(FullySharded, KeepsAnNthOfAllAndTwoUnits) {
  constexpr int kRanks = 4, kReplicas = 2;
  const std::vector<std::int64_t> widths(9, 64);
  const std::int64_t of_unit = (64 * 64 + 64) * 8, whole = 8 * of_unit;
  for (const bool checkpoint : {false, true}) {
    const int replicas = checkpoint ? kReplicas : 1;
    testing::run_ranks(kRanks, [&](const ProcessGroup& group) {
      Sequential net = testing::make_chain(widths);
      testing::bring_here(*net);
      Sharded model(net, group, small_units().checkpoint(checkpoint).replicas(replicas));
      const auto parts = model.parameters();
      const auto optimizer = adam(parts);
      const auto input = testing::here(torch::ones({2, 64}, torch::kDouble));
      for (int step = 0; step < 2; ++step) {
        model(input).sum().backward();
        optimizer->step();
      }
      std::vector<torch::Tensor> gradients, states;
      for (const torch::Tensor& part : parts) {
        gradients.push_back(part.grad());
        const auto& state = static_cast<torch::optim::AdamParamState&>(
            *optimizer->state().at(part.unsafeGetTensorImpl()));
        states.insert(states.end(), {state.exp_avg(), state.exp_avg_sq()});
      }
      const double share = static_cast<double>(whole) * replicas / kRanks;
      EXPECT_NEAR(static_cast<double>(bytes_of(parts)), share, 0.05 * share);
      EXPECT_NEAR(static_cast<double>(bytes_of(gradients)), share, 0.05 * share);
      EXPECT_NEAR(static_cast<double>(bytes_of(states)), 2 * share, 0.1 * share);
      EXPECT_EQ(model.report().bytes_of_parts, bytes_of(parts));
      EXPECT_LE(model.report().peak_of_wholes, 2 * of_unit + 1024);
      EXPECT_LE(model.report().peak_of_gradients, 2 * of_unit + 1024);
      for (const auto& parameter : net->parameters()) {
        EXPECT_FALSE(parameter.grad().defined());
        EXPECT_ANY_THROW(parameter.storage().data());
      }
    });
  }
}

/// A layer that notes, in forward and in backward, how often units have been gathered by then.
struct NotingImpl : torch::nn::Module {
  torch::Tensor forward(const torch::Tensor& input) {
    const auto note = [this] { seen->push_back(look()); };
    note();
    input.register_hook([note](const torch::Tensor&) { note(); });
    return input * 1;
  }
  std::function<std::int64_t()> look;
  std::vector<std::int64_t>* seen = nullptr;
};
TORCH_MODULE(Noting);

TEST(FullySharded, GathersEachUnitAheadAndOnceForEachPass) {
  testing::run_ranks(2, [](const ProcessGroup& group) {
    for (const Reshard reshard : {Reshard::kAfterForward, Reshard::kNever}) {
      Sequential net;
      std::vector<Noting> layers;
      for (int unit = 0; unit < 4; ++unit) {
        net->push_back(Linear(LinearOptions(3, 3)));
        net->push_back(layers.emplace_back());
      }
      testing::bring_here(*net);
      Sharded model(net, group, small_units().reshard(reshard));
      std::vector<std::int64_t> seen;
      for (Noting& layer : layers) {
        layer->look = [&] { return model.report().gathers; };
        layer->seen = &seen;
      }
      model(testing::here(torch::ones({2, 3}))).sum().backward();
      EXPECT_THAT(seen, reshard == Reshard::kNever ? ElementsAre(2, 3, 4, 4, 4, 4, 4, 4)
                                                   : ElementsAre(2, 3, 4, 4, 5, 6, 7, 7));
    }
  });
}

TEST(FullySharded, ParametersHaveNoValuesBetweenTheCalls) {
  testing::run_ranks(2, [](const ProcessGroup& group) {
    Pair pair(group);
    EXPECT_THAT(message_of<c10::Error>([&] { pair.net->parameters().front().sum(); }),
        HasSubstr("while it is in parts"));
    pair.model->eval();
    const torch::NoGradGuard no_gradients;
    const torch::Tensor output = pair.model(input_of(group, 1));
    EXPECT_TRUE(torch::equal(output, pair.serial->forward(input_of(group, 1))));
    for (const auto& parameter : pair.net->parameters()) EXPECT_ANY_THROW(parameter.sum());
  });
}

TEST(FullySharded, ForwardSeesWhatHasChangedSinceOneWithoutBackward) {
  testing::run_ranks(2, [](const ProcessGroup& group) {
    for (const std::int64_t unit_bytes : {1, 1 << 20}) {
      Pair pair(group, Options().unit_bytes(unit_bytes));
      pair.model(input_of(group, 1));
      const torch::NoGradGuard no_gradients;
      for (const auto& part : pair.model.parameters()) part.mul_(2);
      for (const auto& parameter : pair.serial->parameters()) parameter.mul_(2);
      EXPECT_TRUE(
          torch::equal(pair.model(input_of(group, 1)), pair.serial->forward(input_of(group, 1))));
    }
  });
}

/// A layer with a parameter that hands on what it gets.
struct PassingImpl : torch::nn::Module {
  PassingImpl() { register_parameter("weight", torch::ones({1}, torch::kDouble), false); }
  torch::Tensor forward(const torch::Tensor& input) { return input; }
};
TORCH_MODULE(Passing);

TEST(FullySharded, LeavesALayerThatHandsOnItsInputOutOfBackward) {
  testing::run_ranks(3, [](const ProcessGroup& group) {
    torch::manual_seed(8);
    Sequential net(Linear(3, 200), Passing(), Passing(), Linear(200, 2));
    net->to(torch::kDouble);
    testing::bring_here(*net);
    Sharded model(net, group, small_units());
    for (int step = 0; step < 10; ++step) {
      for (const torch::Tensor& part : model.parameters()) part.mutable_grad().reset();
      // Then backward reads the first weight, too.
      model(input_of(group, step).requires_grad_()).sum().backward();
      const torch::Tensor rows = torch::zeros({1, 200}, net->parameters()[0].options());
      for (const ParameterPart& part : model.parts())
        if (part.name == "0.bias")
          rows[0].narrow(0, part.begin, part.tensor.numel()) += part.tensor.grad();
      group.all_reduce(rows).wait();
      const auto whole = model.whole();
      const torch::Tensor expected = 2 * net->parameters()[4].detach().sum(0, /*keepdim=*/true);
      expect_close(rows, expected, 1e-12, "0.bias");
    }
  });
}

// What is refused.

TEST(FullySharded, RefusesAStepBetweenForwardAndBackward) {
  testing::run_ranks(2, [](const ProcessGroup& group) {
    Pair pair(group);
    const torch::Tensor loss = pair.model(input_of(group, 1)).sum();
    for (const torch::Tensor& part : pair.model.parameters()) {
      const torch::NoGradGuard no_gradients;
      part.mul_(2);
    }
    EXPECT_THAT(message_of<Error>([&] { loss.backward(); }),
        HasSubstr("changed between forward and backward"));
  });
}

TEST(FullySharded, RefusesSparseGradients) {
  testing::run_ranks(2, [](const ProcessGroup& group) {
    Sequential net(torch::nn::Embedding(torch::nn::EmbeddingOptions(5, 3).sparse(true)));
    EXPECT_THAT(message_of<InvalidArgument>([&] { Sharded(net, group); }),
        AllOf(HasSubstr("0.weight is sparse"), HasSubstr("without sparse(true)")));
  });
}

TEST(FullySharded, RefusesUnequalModels) {
  testing::run_ranks(2, [](const ProcessGroup& group) {
    Sequential net(Linear(4, 3 + group.rank()));
    EXPECT_THAT(message_of<InvalidArgument>([&] { Sharded(net, group); }),
        HasSubstr("differ between the ranks"));
  });
}

TEST(FullySharded, RefusesParametersOutsideOfTheLayers) {
  testing::run_ranks(2, [](const ProcessGroup& group) {
    Branches net;
    Layers layers;
    layers.insert("left", torch::nn::AnyModule(net->left));
    EXPECT_THAT(message_of<InvalidArgument>([&] { FullyShardedDataParallel(net, layers, group); }),
        HasSubstr("right.weight belongs to no layer"));
  });
}

TEST(FullySharded, RefusesModulesThatHaveChanged) {
  testing::run_ranks(2, [](const ProcessGroup& group) {
    Pair pair(group);
    pair.net->push_back(Linear(2, 2));
    EXPECT_THAT(message_of<Error>([&] { pair.model(input_of(group, 1)); }),
        HasSubstr("5.weight was added"));
  });
}

TEST(FullySharded, RefusesSecondDerivatives) {
  testing::run_ranks(2, [](const ProcessGroup& group) {
    Pair pair(group);
    const torch::Tensor loss = pair.model(input_of(group, 1)).square().sum();
    EXPECT_THAT(
        message_of<Error>([&] { loss.backward({}, /*retain_graph=*/true, /*create_graph=*/true); }),
        HasSubstr("create_graph"));
  });
}

// The rules by which parameters are divided.

TEST(FlatLayout, CutsWhatIsLaidOutOnBordersOfMemory) {
  const FlatLayout layout({5, 16, 1}, 8, 3);
  EXPECT_THAT(layout.offsets, ElementsAre(0, 8, 24));
  EXPECT_EQ(layout.shard, 16);
  EXPECT_EQ(common({16, 16}, {8, 16}), (Stretch{16, 8}));
  EXPECT_EQ(common({16, 16}, {40, 16}).count, 0);
}

// Drawn chains, units and ranks: the model alone up to rounding, of which steps make more, and
// DistributedDataParallel bit for bit.

class DrawnChains : public ::testing::TestWithParam<int> {};

TEST_P(DrawnChains, TrainAsTheModelAlone) {
  for (int index = GetParam(); index < 300; index += 10) {
    std::mt19937 engine(static_cast<std::uint32_t>(index));
    const auto draw = [&](int least, int most) {
      return std::uniform_int_distribution<int>(least, most)(engine);
    };
    torch::manual_seed(static_cast<std::uint64_t>(index));
    const int ranks = std::vector{1, 2, 3, 4, 8}[static_cast<std::size_t>(draw(0, 4))];
    Sequential net;
    const std::int64_t inputs = draw(2, 9);
    std::int64_t width = inputs;
    for (int layer = draw(0, 6); layer > 0; --layer) {
      const std::int64_t next = draw(2, 40);
      net->push_back(Linear(LinearOptions(width, next).bias(draw(0, 1) == 1)));
      width = next;
      if (draw(0, 2) > 0) net->push_back(Tanh());
      if (width > 8 && draw(0, 3) == 0)
        net->push_back(torch::nn::LayerNorm(torch::nn::LayerNormOptions({width})));
    }
    net->push_back(Linear(width, 3));
    net->to(torch::kDouble);
    for (auto& parameter : net->parameters())
      if (draw(0, 4) == 0) parameter.set_requires_grad(false);
    net->parameters().back().set_requires_grad(true);
    const bool has_replicas = ranks % 2 == 0 && draw(0, 2) == 0;
    const auto options = Options()
                             .unit_bytes(draw(0, 1) == 0 ? 1 : 3000)
                             .checkpoint(draw(0, 2) == 0)
                             .reshard(draw(0, 2) == 0 ? Reshard::kNever : Reshard::kAfterForward)
                             .replicas(has_replicas ? 2 : 1);
    const Batch batch = make_batch(24, inputs, 3);
    const MakeOptimizer make = draw(0, 1) == 0 ? sgd : adam;
    const std::string text = concat("case ", index, " on ", ranks, " ranks: ");
    expect_trains_as_alone(net, batch, ranks, options, make, text, 1e-10);
    testing::run_ranks(ranks, [&](const ProcessGroup& group) {
      const Trained replicated = train_replicated(net, group, batch.input, batch.target, make);
      expect_as(
          train_sharded(testing::copy_of(net), group, options, batch.input, batch.target, make),
          replicated, has_replicas ? 1e-10 : 0, text);  // which add up in another order
    });
    ASSERT_FALSE(HasFailure()) << index;
  }
}

INSTANTIATE_TEST_SUITE_P(Parts, DrawnChains, ::testing::Range(0, 10));

}  // namespace
}  // namespace lockstep
