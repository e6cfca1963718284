// Archives of PyTorch 2.15 (tests/formats/export/data), against modules of LibTorch.

#include "lockstep/nn/exported/exported_module.h"

#include <gtest/gtest.h>
#include <string>
#include <thread>
#include <vector>

#include "tests/support/message_of.h"
#include <ATen/CPUGeneratorImpl.h>
#include <ATen/autocast_mode.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/linear.h>
#include <torch/optim/sgd.h>

#include "lockstep/core/error.h"
#include "lockstep/device/parameters.h"
#include "lockstep/nn/autocast.h"
#include "lockstep/parallel/operators/operator_rules.h"

namespace lockstep::nn {
namespace {

using lockstep::testing::expect_parts;
using lockstep::testing::message_of;
using torch::Tensor;

std::string path_of(const std::string& name) {
  return std::string(LOCKSTEP_EXPORT_DATA) + "/" + name + ".pt2";
}

/// The net of conv.pt2, but for its dropout.
struct ConvNet : torch::nn::Module {
  explicit ConvNet(const ExportedModule& exported) {
    const auto state = named_state(*exported);
    const torch::NoGradGuard no_gradients;
    for (const auto& item : named_state(*this)) Tensor(item.value()).copy_(state[item.key()]);
  }

  Tensor forward(const Tensor& images, double p) {
    const auto h = torch::relu(norm(conv(images))).mean({2, 3});
    return head(torch::dropout(h, p, is_training()));
  }

  torch::nn::Conv2d conv =
      register_module("conv", torch::nn::Conv2d(torch::nn::Conv2dOptions(1, 2, 3).padding(1)));
  torch::nn::BatchNorm2d norm = register_module("norm", torch::nn::BatchNorm2d(2));
  torch::nn::Linear head = register_module("head", torch::nn::Linear(2, 3));
};

Tensor images(std::int64_t count) {
  torch::manual_seed(2);
  return torch::randn({count, 1, 4, 4});
}

void expect_equal_state(const torch::nn::Module& a, const torch::nn::Module& b) {
  const auto of_a = named_state(a), of_b = named_state(b);
  EXPECT_EQ(of_a.keys(), of_b.keys());
  for (const auto& item : of_a)
    EXPECT_TRUE(torch::equal(item.value(), of_b[item.key()])) << item.key();
}

template <typename Module, typename Forward>
void train_three_steps(Module& module, const Forward& forward) {
  torch::optim::SGD optimizer(parameters_of(module), 0.1);
  torch::manual_seed(3);
  for (int i = 0; i < 3; ++i) {
    optimizer.zero_grad();
    forward().square().mean().backward();
    optimizer.step();
  }
}

TEST(ExportedModule, TrainsAsAModuleOfLibTorch) {
  auto exported = load_exported(path_of("conv"));
  ConvNet expected(exported);
  const auto batch = images(5);  // exported with two
  train_three_steps(*exported, [&] { return exported->first_output({batch}); });
  train_three_steps(expected, [&] { return expected.forward(batch, 0.1); });
  expect_equal_state(*exported, expected);

  exported->eval();
  expected.eval();
  EXPECT_TRUE(torch::equal(exported->first_output({batch}), expected.forward(batch, 0.1)));
  expect_equal_state(*exported, expected);
}

TEST(ExportedModule, FollowsTheModeOfEachModule) {
  auto exported = load_exported(path_of("conv"));
  ConvNet expected(exported);
  exported->named_modules()["norm"]->eval();
  expected.norm->eval();
  const auto batch = images(2);
  train_three_steps(*exported, [&] { return exported->first_output({batch}); });
  train_three_steps(expected, [&] { return expected.forward(batch, 0.1); });
  expect_equal_state(*exported, expected);
  EXPECT_EQ(exported->named_buffers()["norm.num_batches_tracked"].item<int>(), 0);
}

TEST(ExportedModule, HasPythonsNamesInPythonsOrder) {
  const auto exported = load_exported(path_of("conv"));
  EXPECT_EQ(named_state(*exported).keys(),
      (std::vector<std::string>{"conv.weight", "conv.bias", "norm.weight", "norm.bias",
          "norm.running_mean", "norm.running_var", "norm.num_batches_tracked", "head.weight",
          "head.bias"}));
  EXPECT_EQ(exported->input_names(), std::vector<std::string>{"x"});
  EXPECT_TRUE(exported->named_modules().contains("drop")) << "a module without tensors has a mode";
}

TEST(ExportedModule, ClonesTrainApart) {
  auto exported = load_exported(path_of("conv"));
  exported->named_parameters()["conv.bias"].set_requires_grad(false);
  exported->named_modules()["norm"]->eval();
  const auto copy = std::dynamic_pointer_cast<ExportedModuleImpl>(exported->clone());
  expect_equal_state(*exported, *copy);
  EXPECT_FALSE(copy->named_parameters()["conv.bias"].requires_grad());
  EXPECT_FALSE(copy->named_modules()["norm"]->is_training());
  EXPECT_TRUE(copy->is_training());
  const auto before = exported->named_parameters()["head.weight"].clone();
  train_three_steps(*copy, [&] { return copy->first_output({images(2)}); });
  EXPECT_TRUE(torch::equal(exported->named_parameters()["head.weight"], before));
  EXPECT_FALSE(torch::equal(copy->named_parameters()["head.weight"], before));
}

TEST(ExportedModule, ClonesRunAtTheSameTime) {
  auto exported = load_exported(path_of("conv"));
  exported->eval();
  const auto batch = images(8);
  const auto expected = exported->first_output({batch});
  std::vector<Tensor> results(4);
  std::vector<std::thread> threads;
  for (Tensor& result : results) {
    threads.emplace_back([&] {
      const auto copy = std::dynamic_pointer_cast<ExportedModuleImpl>(exported->clone());
      for (int i = 0; i < 50; ++i) result = copy->first_output({batch});
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const Tensor& result : results) EXPECT_TRUE(torch::equal(result, expected));
}

TEST(ExportedModule, ConvertsItsTensors) {
  auto exported = load_exported(path_of("conv"));
  exported->to(torch::kDouble);
  EXPECT_EQ(exported->first_output({images(2).to(torch::kDouble)}).scalar_type(), torch::kDouble);
}

TEST(ExportedModule, DrawsFromTheStreamOfItsThread) {
  auto exported = load_exported(path_of("conv"));
  const auto drawn = [&] {
    const RandomStream stream(make_stream_generator(5, 0, 0));
    return exported->first_output({images(8)});
  };
  const auto first = drawn();
  torch::rand({3});
  EXPECT_TRUE(torch::equal(drawn(), first));
}

TEST(ExportedModule, ObeysRulesForBatchNorm) {
  auto exported = load_exported(path_of("conv"));
  const auto mean = [&] { return exported->named_buffers()["norm.running_mean"].clone(); };
  const auto before = mean();
  {
    FrozenStatistics rule;
    const BatchNormScope scope(rule);
    exported->first_output({images(2)});
  }
  EXPECT_TRUE(torch::equal(mean(), before));
  exported->first_output({images(2)});
  EXPECT_FALSE(torch::equal(mean(), before));
}

TEST(ExportedModule, ComputesInTheTypeOfAutocast) {
  auto exported = load_exported(path_of("conv"));
  const Autocast autocast(at::kCPU);
  const auto result = exported->first_output({images(2)});
  EXPECT_EQ(result.scalar_type(), torch::kBFloat16);
  result.sum().backward();
  EXPECT_EQ(exported->parameters()[0].grad().scalar_type(), torch::kFloat);
}

TEST(ExportedModule, TiesWeightsOfTwoProgramsThatAreOneModel) {
  auto exported = load_exported(path_of("programs"));
  EXPECT_EQ(
      named_state(*exported).keys(), (std::vector<std::string>{"embed.weight", "head.weight"}));
  ASSERT_EQ(parameters_of(*exported).size(), 1);
  const auto ids = torch::arange(6).view({2, 3}) % 8;
  const auto outputs = exported->forward({ids});
  EXPECT_EQ(outputs.keys(), (std::vector<std::string>{"logits", "hidden.0"}));
  const auto weight = parameters_of(*exported)[0];
  EXPECT_FALSE(torch::equal(outputs["hidden.0"], torch::embedding(weight, ids))) << "drops";
  exported->eval();
  const auto hidden = exported->forward({ids})["hidden.0"];
  EXPECT_TRUE(torch::equal(hidden, torch::embedding(weight, ids)));

  const auto copy = exported->clone();
  EXPECT_EQ(parameters_of(*copy).size(), 1);
}

TEST(ExportedModule, RunsGraphsInItsGraph) {
  auto exported = load_exported(path_of("modes"));
  const auto x = torch::randn({2, 5, 4}).requires_grad_();
  const auto outputs = exported->forward({x}).values();
  EXPECT_EQ(outputs[0].scalar_type(), torch::kBFloat16) << "an autocast of the program";
  EXPECT_EQ(outputs[0].sizes(), (std::vector<std::int64_t>{40}));
  EXPECT_FALSE(outputs[1].requires_grad()) << "a no_grad of the program";
  EXPECT_TRUE(torch::allclose(outputs[1], x.sum() + 3));
  outputs[0].sum().backward();
  EXPECT_TRUE(x.grad().defined());
  EXPECT_FALSE(at::autocast::is_autocast_enabled(at::kCPU));
  EXPECT_EQ(named_state(*exported).keys(), std::vector<std::string>{"proj.weight"})
      << "a buffer that is not persistent has no place in files";
}

TEST(ExportedModule, NamesNestedOutputs) {
  auto exported = load_exported(path_of("nested"));
  const auto names = exported->input_names();
  std::vector<Tensor> inputs;
  for (const std::string& name : names)
    inputs.push_back(name == "extra"            ? torch::zeros({1})
                     : name.ends_with("unused") ? torch::zeros({2})
                                                : torch::zeros({2, 1}));
  const auto at = std::ranges::find_if(names, [](const auto& name) { return name.ends_with("x"); });
  inputs[static_cast<std::size_t>(at - names.begin())] =
      torch::tensor({{1.0F, -2.0F}, {3.0F, 4.0F}});
  const auto outputs = exported->forward(inputs);
  EXPECT_EQ(outputs.keys()[0], "0.first");
  EXPECT_EQ(outputs.size(), 5) << "None is left out";
}

TEST(ExportedModule, TwoProgramsMustBeTrainAndEval) {
  ExportedArchive archive = read_exported(path_of("programs"));
  archive.programs[0].name = "other";
  expect_parts(message_of<DataError>([&] { ExportedModuleImpl{archive}; }),
      {"it has the programs", "`train` and `eval`"});
}

TEST(ExportedModule, TwoProgramsMustHaveTheSameWeights) {
  ExportedArchive archive = read_exported(path_of("programs"));
  ExportedProgram& program = archive.programs[1];
  std::vector<std::uint8_t> zeros(128);
  auto entries = program.tensors.entries();
  for (TensorEntry& entry : entries) entry.bytes = zeros;
  program.tensors = TensorFile(entries, {}, nullptr);
  expect_parts(message_of<DataError>([&] { ExportedModuleImpl{archive}; }),
      {"has other values than in another program; export both from one model"});
}

}  // namespace
}  // namespace lockstep::nn
