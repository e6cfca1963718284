// Nets with tied weights by every way of spreading, against Python's numbers, made by
// tests/conformance/tied.py.

#include <functional>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <ostream>
#include <string>
#include <vector>

#include "tests/support/expected_numbers.h"
#include "tests/support/temporary_folder.h"
#include <ATen/core/grad_mode.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/sin.h>
#include <ATen/ops/tanh.h>
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/embedding.h>
#include <torch/nn/modules/linear.h>

#include "lockstep/device/parameters.h"
#include "lockstep/nn/models/plugin_library.h"
#include "lockstep/nn/weights.h"
#include "lockstep/snapshot/optimizer_state.h"
#include "lockstep/train/strategy/replica.h"
#include "lockstep/train/task/classification.h"

namespace lockstep {
namespace {

using ::testing::DoubleNear;
using ::testing::Pointwise;
using torch::Tensor;

constexpr int kSteps = 5;

Tensor formula(std::int64_t count, double start) {
  const Tensor numbers = at::arange(count, torch::kDouble);
  return at::sin(numbers * numbers * 0.37 + start);
}

// One tensor under two names.
struct TwoNamesImpl : torch::nn::Module {
  TwoNamesImpl() {
    a = register_parameter("a", torch::empty({4, 4}));
    b = register_parameter("b", a);
  }
  Tensor forward(const Tensor& x) { return at::tanh(x.matmul(a)).matmul(b); }
  Tensor a, b;
};
TORCH_MODULE(TwoNames);

// The output layer of an embedding's own weight.
struct HeadImpl : torch::nn::Module {
  explicit HeadImpl(const Tensor& words) { weight = register_parameter("weight", words); }
  Tensor forward(const Tensor& x) { return at::linear(x, weight); }
  Tensor weight;
};
TORCH_MODULE(Head);

struct WordsImpl : torch::nn::Module {
  Tensor forward(const Tensor& x) { return head(at::tanh(mix(words(x).mean(1)))); }
  torch::nn::Embedding words = register_module("words", torch::nn::Embedding(7, 4));
  torch::nn::Linear mix = register_module("mix", torch::nn::Linear(4, 4));
  Head head = register_module("head", Head(words->weight));
};
TORCH_MODULE(Words);

// A module under two names.
struct OneLayerTwiceImpl : torch::nn::Module {
  Tensor forward(const Tensor& x) { return second(at::tanh(first(x))); }
  torch::nn::Linear first = register_module("first", torch::nn::Linear(4, 4));
  torch::nn::Linear second = register_module("second", first);
};
TORCH_MODULE(OneLayerTwice);

struct Net {
  const char* name;
  std::int64_t classes;
  std::function<nn::PluginNet()> make;
};

const std::vector<Net>& nets() {
  static const std::vector<Net> kAll{{"TwoNames", 4, [] { return nn::plugin_net(TwoNames()); }},
      {"Words", 7, [] { return nn::plugin_net(Words()); }},
      {"OneLayerTwice", 4, [] { return nn::plugin_net(OneLayerTwice()); }},
      {"Chain", 4, [] {
         return nn::plugin_net(
             torch::nn::Sequential(TwoNames(), torch::nn::Tanh(), torch::nn::Linear(4, 4)));
       }}};
  return kAll;
}

nn::Model model_of(const Net& net) {
  const nn::PluginModel plugin{net.name, [&net](std::int64_t) { return net.make(); }};
  const std::shared_ptr<nn::ModelImpl> model =
      std::make_shared<nn::PluginModelImpl>(plugin, net.classes);
  model->to(torch::kDouble);
  const torch::NoGradGuard no_gradients;
  double place = 0;
  for (const Tensor& parameter : parameters_of(*model))
    parameter.copy_(formula(parameter.numel(), place++).view(parameter.sizes()) * 0.5);
  return nn::Model(model);
}

Batch batch_of(const Net& net) {
  const Tensor numbers = at::arange(8, torch::kLong) * 3;
  if (net.classes == 7)
    return {(at::arange(24, torch::kLong).view({8, 3}) * 5).remainder(7), numbers.remainder(7)};
  return {formula(32, 0.5).view({8, 4}), numbers.remainder(4)};
}

Batch share_of(const Batch& batch, const ProcessGroup& world) {
  const auto share = [&](const Tensor& all) {
    return all.chunk(world.size())[static_cast<std::size_t>(world.rank())];
  };
  return {share(batch.input()), share(batch.target())};
}

struct Way {
  const char* name;
  Parallel parallel;
  int ranks = 1;
  bool sharded = false;
};

const std::vector<Way> kWays{{"serial", Parallel::kSerial}, {"ddp", Parallel::kDdp, 2},
    {"sharded", Parallel::kDdp, 2, true}, {"dp", Parallel::kDp}, {"pp", Parallel::kPp}};

OptimizerSettings settings_of(const std::string& name) {
  OptimizerSettings settings = default_settings(OptimizerKind::kSgd);
  if (name == "Adam") settings = default_settings(OptimizerKind::kAdam);
  if (name == "AdamW") settings = default_settings(OptimizerKind::kAdamW);
  const bool is_sgd = settings.kind == OptimizerKind::kSgd;
  settings.lr = is_sgd ? 0.1 : 0.01;
  if (!is_sgd) settings.eps = 1e-8;
  if (name == "Sgd") settings.momentum = 0;
  if (name == "SgdMomentum") settings.weight_decay = 0.01;
  if (name == "AdamW") settings.weight_decay = 0.1;
  return settings;
}

std::unique_ptr<Replica> replica_of(
    const Net& net, const Way& way, const std::string& optimizer, const ProcessGroup& world) {
  TrainOptions options;
  options.parallel = way.parallel;
  options.batch_size = 8 / way.ranks;
  options.optimizer = settings_of(optimizer);
  options.optimizer.sharded = way.sharded;
  PreparedModel prepared{
      .model = model_of(net), .task = std::make_shared<Classification>(), .start = {}};
  const RankGroups groups{world, world, ProcessGroup()};
  std::unique_ptr<Replica> replica;
  if (way.parallel == Parallel::kPp) {
    prepared.balance = {2, 1};
    replica = std::make_unique<PipelineReplica>(options, groups, prepared, cpu_places(2));
  } else {
    replica = std::make_unique<ModuleReplica>(options, groups, prepared, cpu_places(2));
  }
  replica->set_training(true);
  return replica;
}

void train(Replica& replica, const Batch& batch, const std::string& optimizer, int first, int end) {
  for (int step = first; step < end; ++step) {
    replica.backward(batch, {}, step);
    replica.update(settings_of(optimizer).lr);
  }
}

void expect_python(const nn::NamedTensors& state, const std::string& name) {
  std::vector<Tensor> rows;
  for (const Tensor& parameter : distinct(state.values()))
    rows.push_back(parameter.detach().flatten());
  const Tensor all = at::cat(rows);
  const auto* first = all.const_data_ptr<double>();
  EXPECT_THAT(std::vector<double>(first, first + all.numel()),
      Pointwise(DoubleNear(1e-6), testing::expected_numbers("tied.txt", name)));
}

struct Saved {
  nn::NamedTensors weights{"Tensor"};
  OptimizerState optimizer;
};

nn::NamedTensors clone_of(const nn::NamedTensors& tensors) {
  nn::NamedTensors copy("Tensor");
  for (const auto& item : tensors) copy.insert(item.key(), item.value().detach().clone());
  return copy;
}

Saved saved(Replica& replica) {
  OptimizerState state = optimizer_state(replica.optimizer(), replica.state());
  state.tensors = clone_of(state.tensors);
  return {clone_of(replica.state()), std::move(state)};
}

struct Case {
  Net net;
  Way way;
  std::string optimizer;
};

std::ostream& operator<<(std::ostream& out, const Case& given) { return out << given.net.name; }

class TiedWeights : public ::testing::TestWithParam<Case> {};

TEST_P(TiedWeights, TrainAsInPythonAlsoOverAResume) {
  const Net& net = GetParam().net;
  const Way& way = GetParam().way;
  const std::string& optimizer = GetParam().optimizer;
  const std::string numbers = net.name + optimizer;
  std::vector<Saved> parts(static_cast<std::size_t>(way.ranks));
  run_ranks(way.ranks, [&](const ProcessGroup& world) {
    const Batch batch = share_of(batch_of(net), world);
    const auto whole = replica_of(net, way, optimizer, world);
    train(*whole, batch, optimizer, 0, 3);
    parts[static_cast<std::size_t>(world.rank())] = saved(*whole);
    train(*whole, batch, optimizer, 3, kSteps);
    expect_python(whole->state(), numbers);
    world.barrier().wait();
    std::vector<OptimizerState> states;
    for (const Saved& part : parts) states.push_back(part.optimizer);
    const auto resumed = replica_of(net, way, optimizer, world);
    restore_tensors(resumed->state(), parts.front().weights, "test");
    restore_optimizer(
        resumed->optimizer(), resumed->state(), way.sharded ? joined(states) : states.front());
    train(*resumed, batch, optimizer, 3, kSteps);
    expect_python(resumed->state(), numbers);
  });
}

// Stages are cut from chains.
std::vector<Case> cases() {
  std::vector<Case> all;
  for (const Net& net : nets()) {
    for (const char* optimizer : {"SgdMomentum", "Adam"})
      all.push_back({net, kWays.front(), optimizer});
    for (const Way& way : kWays) {
      if (way.parallel == Parallel::kPp && net.name != std::string("Chain")) continue;
      for (const char* optimizer : {"Sgd", "AdamW"}) all.push_back({net, way, optimizer});
    }
  }
  return all;
}

INSTANTIATE_TEST_SUITE_P(Ways, TiedWeights, ::testing::ValuesIn(cases()), [](const auto& test) {
  return test.param.net.name + std::string("_") + test.param.way.name + "_" + test.param.optimizer;
});

}  // namespace
}  // namespace lockstep
