// Fused squeeze and excitation: which nodes are one step, and that it computes what they do.

#include "lockstep/nn/exported/squeeze_excite_fusion.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <string>
#include <vector>

#include "tests/nn/exported/small_program.h"
#include <ATen/Parallel.h>
#include <ATen/ops/arange.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/function.h>
#include <torch/types.h>

#include "lockstep/nn/autocast.h"
#include "lockstep/nn/kernels.h"

namespace lockstep::nn {
namespace {

using lockstep::testing::list_of;
using lockstep::testing::SmallProgram;
using lockstep::testing::value;
using ::testing::ElementsAre;
using torch::Tensor;
using Kind = ExportedInputSpec::Kind;

constexpr std::int64_t kMaps = 5, kReduced = 3;

/// The ways in which a block is written; timm's by default.
struct BlockForm {
  std::string activation = "silu_", between = "silu_", gate = "sigmoid", read = "";
  bool is_pooled = false, is_gate_first = false, keeps_dimensions = true, has_node_between = false;
  std::int64_t last_dimension = 3, stride = 1;
  bool is_between = false;  ///< modules, `before` and `behind`
  bool reads_mean = false;  ///< in `before`, the running one
};

/// x [4, 5, 4, 4], doubled; then norm, activation and the rest. `read` is an output, too.
class BlockProgram {
 public:
  explicit BlockProgram(const BlockForm& form = {}) {
    program_.input("x", {4, kMaps, 4, 4});
    for (const char* const name : {"weight", "bias"}) held(name, {kMaps});
    for (const char* const name : {"mean", "var"})
      program_.held(Kind::kBuffer, std::string("bn.") + name, name, {kMaps});
    held("w1", {kReduced, kMaps, 1, 1}).held("b1", {kReduced});
    held("w2", {kMaps, kReduced, 1, 1}).held("b2", {kMaps});
    const std::string before = form.is_between ? "before" : "bn",
                      added = form.reads_mean ? "s" : "x";
    if (form.reads_mean) node("sum.default", {{"self", value("mean")}}, "s", before);
    node("add.Tensor", {{"self", value("x")}, {"other", value(added)}}, "input", before);
    node("batch_norm.default",
        {{"input", value("input")}, {"weight", value("weight")}, {"bias", value("bias")},
            {"running_mean", value("mean")}, {"running_var", value("var")}, {"training", {true}},
            {"momentum", {0.1}}, {"eps", {1e-5}}, {"cudnn_enabled", {true}}},
        "n");
    const std::string a = form.activation.empty() ? "n" : "a";
    if (!form.activation.empty()) one(form.activation, "n", "a");
    if (form.has_node_between) one("neg", "x", "other");
    squeeze(form, a);
    convolution("m", "w1", "b1", form.stride, "first");
    one(form.between, "first", "between");
    convolution("between", "w2", "b2", 1, "second");
    one(form.gate, "second", "g");
    const std::string left = form.is_gate_first ? "g" : a, right = form.is_gate_first ? a : "g";
    node("mul.Tensor", {{"self", value(left)}, {"other", value(right)}}, "y");
    if (form.is_between) node("neg.default", {{"self", value("y")}}, "z", "behind");
    program_.output(form.is_between ? "z" : "y");
    if (!form.read.empty()) program_.output(form.read);
  }

  std::vector<std::size_t> fused() { return testing::nodes_of_fused_steps(program_); }

  const SmallProgram& program() const { return program_; }

 private:
  BlockProgram& held(const std::string& name, const std::vector<std::int64_t>& sizes) {
    program_.held(Kind::kParameter, "bn." + name, name, sizes);
    return *this;
  }

  void node(const std::string& target,
      const std::vector<std::pair<std::string, ExportedArgument>>& arguments,
      const std::string& result, const std::string& module = "bn") {
    program_.node("torch.ops.aten." + target, arguments, result, module);
  }

  void one(const std::string& target, const std::string& of, const std::string& result) {
    node(target + ".default", {{"self", value(of)}}, result);
  }

  void squeeze(const BlockForm& form, const std::string& of) {
    if (form.is_pooled)
      return node("adaptive_avg_pool2d.default",
          {{"self", value(of)}, {"output_size", list_of({1, 1})}}, "m");
    node("mean.dim",
        {{"self", value(of)}, {"dim", list_of({2, form.last_dimension})},
            {"keepdim", {form.keeps_dimensions}}},
        "m");
  }

  void convolution(const std::string& of, const std::string& weight, const std::string& bias,
      std::int64_t stride, const std::string& result) {
    node("conv2d.default",
        {{"input", value(of)}, {"weight", value(weight)}, {"bias", value(bias)},
            {"stride", list_of({stride, stride})}},
        result);
  }

  SmallProgram program_;
};

using FusedNodes = std::vector<std::size_t>;
const FusedNodes kOneBlock{7};

const BlockForm kOfTorchvision{.activation = "relu_",
    .between = "relu",
    .gate = "hardsigmoid",
    .is_pooled = true,
    .is_gate_first = true};

TEST(SqueezeExciteFusion, JoinsTheNodesOfABlock) {
  EXPECT_EQ(BlockProgram().fused(), kOneBlock);
  EXPECT_EQ(BlockProgram(kOfTorchvision).fused(), kOneBlock);
  EXPECT_EQ(BlockProgram({.activation = "hardswish_", .between = "relu_"}).fused(), kOneBlock);
  EXPECT_EQ(BlockProgram({.activation = ""}).fused(), kOneBlock) << "as in SE-ResNet";
}

TEST(SqueezeExciteFusion, LeavesAloneWhatIsReadBetween) {
  for (const char* const inner : {"n", "m", "first", "between", "second", "g"})
    EXPECT_EQ(BlockProgram({.activation = "silu", .between = "silu", .read = inner}).fused(),
        FusedNodes())
        << inner;
  EXPECT_EQ(BlockProgram({.read = "a"}).fused(), FusedNodes());
}

TEST(SqueezeExciteFusion, LeavesAloneWhatIsNoBlock) {
  EXPECT_EQ(BlockProgram({.activation = "tanh"}).fused(), FusedNodes());
  EXPECT_EQ(BlockProgram({.between = "tanh"}).fused(), FusedNodes());
  EXPECT_EQ(BlockProgram({.gate = "tanh"}).fused(), FusedNodes());
  EXPECT_EQ(BlockProgram({.last_dimension = 1}).fused(), FusedNodes());
  EXPECT_EQ(BlockProgram({.keeps_dimensions = false}).fused(), FusedNodes());
  EXPECT_EQ(BlockProgram({.stride = 2}).fused(), FusedNodes());
  EXPECT_EQ(BlockProgram({.has_node_between = true}).fused(), FusedNodes());
}

// Its norm moves them: a stage of a pipeline that reads them before has it, too.
TEST(SqueezeExciteFusion, StaysWithWhatReadsItsStatistics) {
  const auto layers_of = [](const BlockForm& form) {
    EXPECT_EQ(BlockProgram(form).fused(), kOneBlock);
    return BlockProgram(form).program().layers().keys();
  };
  EXPECT_THAT(layers_of({.is_between = true}), ElementsAre("before", "bn", "behind"));
  EXPECT_THAT(layers_of({.is_between = true, .reads_mean = true}), ElementsAre("before", "behind"));
}

/// The output, the gradients of x and of the parameters, and the buffers.
std::vector<Tensor> learned(const BlockForm& form, Kernels kernels, std::string& name,
    bool in_training = true, at::ScalarType type = at::kFloat) {
  const KernelScope scope(kernels);
  torch::manual_seed(3);
  auto module = BlockProgram(form).program().module();
  for (Tensor& parameter : module->parameters()) parameter.data().normal_();
  module->to(type);
  module->train(in_training);
  const Tensor x = torch::randn({4, kMaps, 4, 4})
                       .to(type)
                       .contiguous(at::MemoryFormat::ChannelsLast)
                       .requires_grad_();
  const Tensor result = module->first_output({x});
  name = result.grad_fn()->name();
  const Tensor weights = at::arange(1, result.numel() + 1).view_as(result).to(type).sin();
  auto wanted = module->parameters();
  wanted.push_back(x);
  auto found = torch::autograd::grad({(result * weights).sum()}, wanted);
  found.push_back(result);
  for (const auto& buffer : module->named_buffers()) found.push_back(buffer.value());
  return found;
}

void expect_as_nodes(const BlockForm& form, bool in_training, bool is_own) {
  SCOPED_TRACE(::testing::Message() << form.activation << form.between << form.gate << in_training);
  BlockForm plain = form;
  plain.read = "g";  // not fused
  std::string name;
  const auto wanted = learned(plain, Kernels::kLibTorch, name, in_training);
  const auto found = learned(form, Kernels::kOwn, name, in_training);
  EXPECT_EQ(name.find("OwnSqueezeExcite") != std::string::npos, is_own) << name;
  const auto same = learned(form, Kernels::kLibTorch, name, in_training);
  ASSERT_EQ(found.size(), wanted.size());
  for (std::size_t i = 0; i < wanted.size(); ++i) {
    const double size = std::max(1.0, wanted[i].abs().max().item<double>());
    EXPECT_LE((found[i] - wanted[i]).abs().max().item<double>(), 1e-5 * size) << i;
    EXPECT_TRUE(same[i].equal(wanted[i])) << "of LibTorch " << i;
  }
}

TEST(SqueezeExciteFusion, ComputesWhatTheNodesDo) {
  for (const BlockForm& form : {BlockForm{}, kOfTorchvision, BlockForm{.activation = ""},
           BlockForm{.activation = "hardswish_", .between = "relu_", .gate = "hardsigmoid"}}) {
    expect_as_nodes(form, /*in_training=*/true, /*is_own=*/true);
    expect_as_nodes(form, /*in_training=*/false, /*is_own=*/false);
  }
}

// The convolutions are in bfloat16 there.
TEST(SqueezeExciteFusion, UnderAutocastIsTheNodes) {
  const Autocast autocast(at::kCPU);
  std::string name;
  BlockForm plain;
  plain.read = "g";
  const auto wanted = learned(plain, Kernels::kOwn, name), found = learned({}, Kernels::kOwn, name);
  EXPECT_EQ(name.find("OwnSqueezeExcite"), std::string::npos) << name;
  for (std::size_t i = 0; i < wanted.size(); ++i) EXPECT_TRUE(found[i].equal(wanted[i])) << i;
}

TEST(SqueezeExciteFusion, OtherTypesAreTheNodes) {
  std::string name;
  BlockForm plain;
  plain.read = "g";
  const auto wanted = learned(plain, Kernels::kLibTorch, name, true, at::kDouble);
  const auto found = learned({}, Kernels::kOwn, name, true, at::kDouble);
  for (std::size_t i = 0; i < wanted.size(); ++i) EXPECT_TRUE(found[i].equal(wanted[i])) << i;
}

TEST(SqueezeExciteFusion, LeavesFewerImagesThanThreadsToTheNodes) {
  const auto is_own = [](Kernels kernels, int threads) {
    const auto before = at::get_num_threads();
    at::set_num_threads(threads);
    std::string name;
    learned({}, kernels, name);
    at::set_num_threads(before);
    return name.find("OwnSqueezeExcite") != std::string::npos;
  };
  EXPECT_TRUE(is_own(Kernels::kAuto, 4));  // of 4 images
  EXPECT_FALSE(is_own(Kernels::kAuto, 5));
  EXPECT_TRUE(is_own(Kernels::kOwn, 5));
}

}  // namespace
}  // namespace lockstep::nn
