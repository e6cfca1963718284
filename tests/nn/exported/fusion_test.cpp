// Fused steps: which chains of nodes are one, and that they compute what the nodes do.

#include "lockstep/nn/exported/fusion.h"

#include <gtest/gtest.h>
#include <string>
#include <vector>

#include "tests/nn/exported/small_program.h"
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/function.h>
#include <torch/types.h>

#include "lockstep/nn/exported/exported_module.h"
#include "lockstep/nn/exported/graph_parts.h"
#include "lockstep/nn/kernels.h"

namespace lockstep::nn {
namespace {

using exported::BehindNorm;
using lockstep::testing::SmallProgram;
using lockstep::testing::value;
using torch::Tensor;
using Kind = ExportedInputSpec::Kind;
using Arguments = std::vector<std::pair<std::string, ExportedArgument>>;

const std::string kAten = "torch.ops.aten.";
constexpr std::int64_t kChannels = 3;

Arguments two(const std::string& first, const std::string& second) {
  return {{"self", value(first)}, {"other", value(second)}};
}

/// A block of a net: x and y [2, 3, 4, 4] come in, `input` is x + x, and a norm makes `n` of it.
class NormProgram {
 public:
  NormProgram() {
    for (const char* const name : {"x", "y"}) program_.input(name, {2, kChannels, 4, 4});
    for (const char* const name : {"weight", "bias"})
      program_.held(Kind::kParameter, std::string("bn.") + name, name, kChannels);
    for (const char* const name : {"mean", "var"})
      program_.held(Kind::kBuffer, std::string("bn.") + name, name, kChannels);
    node("add.Tensor", two("x", "x"), "input");
    norm("input", "n");
  }

  NormProgram& norm(const std::string& input, const std::string& result) {
    return node("batch_norm.default",
        {{"input", value(input)}, {"weight", value("weight")}, {"bias", value("bias")},
            {"running_mean", value("mean")}, {"running_var", value("var")}, {"training", {true}},
            {"momentum", {0.1}}, {"eps", {1e-5}}, {"cudnn_enabled", {true}}},
        result);
  }

  NormProgram& node(
      const std::string& target, const Arguments& arguments, const std::string& result) {
    program_.node(kAten + target, arguments, result, "bn");
    return *this;
  }

  NormProgram& activation(const std::string& name, const std::string& of) {
    return node(name + ".default", {{"self", value(of)}}, "r");
  }

  NormProgram& relu(const std::string& of) { return activation("relu_", of); }

  NormProgram& output(const std::string& name) {
    program_.output(name);
    return *this;
  }

  std::vector<BehindNorm> behind() {
    exported::GraphNeeds needs;
    std::vector<BehindNorm> found;
    for (const auto& step : exported::parts_of(program_.graph(), {"net"}, needs).steps) {
      if (step.operation->schema().name() == "aten::batch_norm") found.push_back(step.behind);
    }
    return found;
  }

  ExportedModule module() const {
    return ExportedModule(std::make_shared<ExportedModuleImpl>(program_.archive()));
  }

 private:
  SmallProgram program_;
};

using Expected = std::vector<BehindNorm>;
const Expected kAlone = {BehindNorm::kNothing};

TEST(Fusion, JoinsANormWithReluAndAddition) {
  EXPECT_EQ(NormProgram().relu("n").output("r").behind(), Expected{BehindNorm::kRelu});
  EXPECT_EQ(
      NormProgram().activation("silu", "n").output("r").behind(), Expected{BehindNorm::kSilu});
  EXPECT_EQ(NormProgram().activation("hardswish_", "n").output("r").behind(),
      Expected{BehindNorm::kHardswish});
  EXPECT_EQ(NormProgram().node("add_.Tensor", two("n", "y"), "s").relu("s").output("r").behind(),
      Expected{BehindNorm::kAddInPlaceAndRelu});
  EXPECT_EQ(NormProgram().node("add.Tensor", two("y", "n"), "s").relu("s").output("r").behind(),
      Expected{BehindNorm::kAddAndRelu});
}

TEST(Fusion, LeavesAloneWhatElseIsRead) {
  EXPECT_EQ(NormProgram().relu("n").output("r").output("n").behind(), kAlone);
  EXPECT_EQ(NormProgram()
                .node("add.Tensor", two("n", "y"), "s")
                .relu("s")
                .output("r")
                .output("s")
                .behind(),
      kAlone);
  EXPECT_EQ(
      NormProgram().node("add.Tensor", two("n", "n"), "s").relu("s").output("r").behind(), kAlone);
}

TEST(Fusion, LeavesAloneWhatIsAnotherSum) {
  EXPECT_EQ(
      NormProgram().node("add_.Tensor", two("y", "n"), "s").relu("s").output("r").behind(), kAlone)
      << "y changes";
  auto scaled = two("n", "y");
  scaled.push_back({"alpha", {2L}});
  EXPECT_EQ(NormProgram().node("add.Tensor", scaled, "s").relu("s").output("r").behind(), kAlone);
  EXPECT_EQ(NormProgram()
                .node("add.Tensor", {{"self", value("n")}, {"other", {1.5}}}, "s")
                .relu("s")
                .output("r")
                .behind(),
      kAlone);
}

// The shortcut of a ResNet is computed between norm and addition.
TEST(Fusion, MovesANormBehindWhatMakesTheAddend) {
  NormProgram program;
  program.node("mul.Tensor", two("y", "y"), "shortcut")
      .node("add_.Tensor", two("n", "shortcut"), "s")
      .relu("s")
      .output("r");
  EXPECT_EQ(program.behind(), Expected{BehindNorm::kAddInPlaceAndRelu});
}

TEST(Fusion, DoesNotMoveANormPastWhatItMeets) {
  NormProgram written;
  written.node("mul_.Tensor", two("input", "y"), "shortcut")
      .node("add.Tensor", two("n", "shortcut"), "s")
      .relu("s")
      .output("r");
  EXPECT_EQ(written.behind(), kAlone) << "its input changes";

  NormProgram updated;
  updated.node("mul.Tensor", two("y", "y"), "z")
      .norm("z", "shortcut")
      .node("add.Tensor", two("n", "shortcut"), "s")
      .relu("s")
      .output("r");
  EXPECT_EQ(updated.behind(), (Expected{BehindNorm::kNothing, BehindNorm::kAddAndRelu}))
      << "both move the same statistics: only the second one, which need not move, is joined";
}

struct Outcome {
  Tensor result, x, y, weight, mean, var;
};

Outcome outcome_of(const NormProgram& program, Kernels kernels, bool in_training = true) {
  const KernelScope scope(kernels);
  torch::manual_seed(3);
  const auto drawn = [] {
    return torch::randn({2, kChannels, 4, 4})
        .contiguous(at::MemoryFormat::ChannelsLast)
        .requires_grad_();
  };
  const Tensor x = drawn(), y = drawn();
  auto module = program.module();
  module->train(in_training);
  const Tensor result = module->first_output({x, y});
  (result * torch::arange(result.numel()).view_as(result)).sum().backward();
  const auto buffers = module->named_buffers();
  return {result, x.grad(), y.grad().defined() ? y.grad() : y, module->parameters()[0].grad(),
      buffers["bn.mean"], buffers["bn.var"]};
}

void expect_close(const Outcome& result, const Outcome& wanted) {
  const auto expect = [](const Tensor& one, const Tensor& other) {
    EXPECT_LE((one - other).abs().max().item<double>(),
        1e-5 * std::max(1.0, other.abs().max().item<double>()));
  };
  expect(result.result, wanted.result);
  expect(result.x, wanted.x);
  expect(result.y, wanted.y);
  expect(result.weight, wanted.weight);
  expect(result.mean, wanted.mean);
  expect(result.var, wanted.var);
}

// The same program, which reads the values between, is not fused.
TEST(Fusion, ComputesWhatTheNodesDo) {
  for (const bool adds : {false, true}) {
    const auto program = [=](bool is_fused) {
      NormProgram net;
      if (adds) net.node("add.Tensor", two("n", "y"), "s");
      net.relu(adds ? "s" : "n").output("r");
      if (!is_fused) net.output("n");
      return net;
    };
    for (const bool in_training : {true, false}) {
      SCOPED_TRACE(::testing::Message() << adds << in_training);
      const auto wanted = outcome_of(program(false), Kernels::kLibTorch, in_training);
      for (const Kernels kernels : {Kernels::kLibTorch, Kernels::kOwn})
        expect_close(outcome_of(program(true), kernels, in_training), wanted);
    }
  }
}

TEST(Fusion, ComputesActivationsAsTheNodesDo) {
  for (const char* const name : {"silu_", "silu", "hardswish_"}) {
    NormProgram program, plain;
    for (NormProgram* const each : {&program, &plain}) each->activation(name, "n").output("r");
    plain.output("n");
    for (const bool in_training : {true, false}) {
      SCOPED_TRACE(::testing::Message() << name << in_training);
      const auto wanted = outcome_of(plain, Kernels::kLibTorch, in_training);
      for (const Kernels kernels : {Kernels::kLibTorch, Kernels::kOwn})
        expect_close(outcome_of(program, kernels, in_training), wanted);
    }
  }
}

TEST(Fusion, LeavesAnActivationOfASumAlone) {
  EXPECT_EQ(NormProgram()
                .node("add.Tensor", two("n", "y"), "s")
                .activation("silu", "s")
                .output("r")
                .behind(),
      kAlone);
}

TEST(Fusion, AddsWhatIsSpreadOver) {
  NormProgram program, plain;
  for (NormProgram* const each : {&program, &plain}) {
    each->node("mean.dim", {{"self", value("y")}, {"dim", {ExportedList{{0L}}}}}, "m")
        .node("add.Tensor", two("n", "m"), "s")
        .relu("s")
        .output("r");
  }
  plain.output("n");
  EXPECT_EQ(program.behind(), Expected{BehindNorm::kAddAndRelu});
  expect_close(outcome_of(program, Kernels::kOwn), outcome_of(plain, Kernels::kLibTorch));
}

/// GPT-2's GELU of x [2, 3, 4, 4], whose factor may be another one; then a matrix product.
class GeluProgram {
 public:
  explicit GeluProgram(double factor = 0.044715) {
    program_.input("x", {2, kChannels, 4, 4});
    program_.held(Kind::kParameter, "weight", "weight", kChannels);
    node("mul.Tensor", two("x", 0.5), "half");
    node("pow.Tensor_Scalar", {{"self", value("x")}, {"exponent", {3.0}}}, "cube");
    node("mul.Tensor", two("cube", factor), "cubed");
    node("add.Tensor", {{"self", value("x")}, {"other", value("cubed")}}, "sum");
    node("mul.Tensor", two("sum", 0.7978845608028654), "inner");
    node("tanh.default", {{"self", value("inner")}}, "t");
    node("add.Tensor", two("t", 1.0), "one");
    node("mul.Tensor", {{"self", value("half")}, {"other", value("one")}}, "g");
  }

  GeluProgram& output(const std::string& name) {
    program_.output(name);
    return *this;
  }

  std::size_t steps() {
    exported::GraphNeeds needs;
    return exported::parts_of(program_.graph(), {"net"}, needs).steps.size();
  }

  Tensor result(const Tensor& x, Kernels kernels) const {
    const KernelScope scope(kernels);
    return ExportedModule(std::make_shared<ExportedModuleImpl>(program_.archive()))
        ->first_output({x});
  }

 private:
  static Arguments two(const std::string& name, double number) {
    return {{"self", value(name)}, {"other", {number}}};
  }

  void node(const std::string& target, const Arguments& arguments, const std::string& result) {
    program_.node(kAten + target, arguments, result, "act");
  }

  SmallProgram program_;
};

TEST(Fusion, JoinsTheNodesOfGelu) {
  EXPECT_EQ(GeluProgram().output("g").steps(), 1U);
  EXPECT_EQ(GeluProgram(0.05).output("g").steps(), 8U) << "another function";
  EXPECT_EQ(GeluProgram().output("g").output("t").steps(), 8U) << "which is read between";
}

TEST(Fusion, ComputesGelu) {
  torch::manual_seed(3);
  const Tensor x = torch::randn({2, kChannels, 4, 4});
  const Tensor wanted = GeluProgram().output("g").output("t").result(x, Kernels::kLibTorch);
  const Tensor own = GeluProgram().output("g").result(x, Kernels::kOwn);
  EXPECT_LE((own - wanted).abs().max().item<double>(), 2e-6);
  EXPECT_TRUE(GeluProgram().output("g").result(x, Kernels::kLibTorch).equal(wanted));
}

TEST(Fusion, ComputesEitherFormOfGelu) {
  for (const char* const form : {"none", "tanh"}) {
    SmallProgram program;
    program.input("x", {20, 30});
    program.node(kAten + "gelu.default",
        {{"self", value("x")}, {"approximate", {std::string(form)}}}, "y", "act");
    program.output("y");
    const auto result = [&](const Tensor& x, Kernels kernels) {
      const KernelScope scope(kernels);
      return ExportedModule(std::make_shared<ExportedModuleImpl>(program.archive()))
          ->first_output({x});
    };
    torch::manual_seed(3);
    const Tensor x = torch::randn({20, 30}).requires_grad_();
    const Tensor own = result(x, Kernels::kOwn), wanted = result(x, Kernels::kLibTorch);
    EXPECT_NE(own.grad_fn()->name().find("OwnGelu"), std::string::npos) << form;
    EXPECT_TRUE(wanted.equal(torch::gelu(x, form)));
    EXPECT_LE((own - wanted).abs().max().item<double>(), 2e-6) << form;
  }
}

/// addmm(bias, x, weight, beta) of x [20, 40].
class AddmmProgram {
 public:
  explicit AddmmProgram(double beta) {
    for (const auto& [name, sizes] : std::vector<std::pair<std::string, std::vector<std::int64_t>>>{
             {"bias", {50}}, {"x", {20, 40}}, {"weight", {40, 50}}})
      program_.input(name, sizes);
    program_.node(kAten + "addmm.default",
        {{"self", value("bias")}, {"mat1", value("x")}, {"mat2", value("weight")},
            {"beta", {beta}}},
        "y", "linear");
    program_.output("y");
  }

  Tensor result(const std::vector<Tensor>& inputs, Kernels kernels) const {
    const KernelScope scope(kernels);
    return ExportedModule(std::make_shared<ExportedModuleImpl>(program_.archive()))
        ->first_output(inputs);
  }

 private:
  SmallProgram program_;
};

TEST(Fusion, AddsAndMultipliesByOurKernels) {
  torch::manual_seed(4);
  std::vector<Tensor> inputs = {torch::randn({50}), torch::randn({20, 40}), torch::randn({40, 50})};
  for (Tensor& input : inputs) input.requires_grad_();
  const auto name = [](const Tensor& result) { return result.grad_fn()->name(); };
  for (const double beta : {1.0, 2.0}) {
    const AddmmProgram program(beta);
    const Tensor own = program.result(inputs, Kernels::kOwn);
    const Tensor wanted = program.result(inputs, Kernels::kLibTorch);
    EXPECT_LE((own - wanted).abs().max().item<double>(), 1e-5);
    EXPECT_EQ(name(own).find("OwnLinear") != std::string::npos, beta == 1) << name(own);
    EXPECT_EQ(name(wanted), "AddmmBackward0");
    const auto gradients = torch::autograd::grad({own.square().sum()}, inputs);
    const auto expected = torch::autograd::grad({wanted.square().sum()}, inputs);
    for (std::size_t i = 0; i < inputs.size(); ++i)
      EXPECT_LE((gradients[i] - expected[i]).abs().max().item<double>(), 1e-3) << i;
  }
}

}  // namespace
}  // namespace lockstep::nn
