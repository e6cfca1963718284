// Programs in layers: tests/formats/export/data/skips.pt2, and programs written node by node.

#include "lockstep/nn/exported/segments.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <string>
#include <utility>
#include <vector>

#include "tests/nn/exported/small_program.h"
#include <ATen/CPUGeneratorImpl.h>
#include <ATen/core/grad_mode.h>
#include <torch/nn/modules/container/any_value.h>
#include <torch/types.h>

#include "lockstep/device/parameters.h"
#include "lockstep/nn/exported/exported_module.h"
#include "lockstep/nn/models/model.h"
#include "lockstep/nn/named_state.h"

namespace lockstep::nn {
namespace {

using lockstep::testing::SmallProgram;
using lockstep::testing::value;
using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::IsSupersetOf;
using torch::Tensor;
using Tensors = std::vector<Tensor>;

Tensor ids() { return torch::arange(5 * 6).view({5, 6}) * 7 % 256; }

Model skips() { return make_model(std::string(LOCKSTEP_EXPORT_DATA) + "/skips.pt2", 256); }

std::vector<std::string> names_of(const Layers& layers) { return layers.keys(); }

Tensors gradients_of(const torch::nn::Module& module) {
  Tensors gradients;
  for (const auto& parameter : module.parameters()) gradients.push_back(parameter.grad().clone());
  return gradients;
}

void expect_equal(const Tensors& a, const Tensors& b) {
  ASSERT_EQ(a.size(), b.size());
  for (std::size_t i = 0; i < a.size(); ++i) EXPECT_TRUE(torch::equal(a[i], b[i])) << i;
}

TEST(Segments, HaveTheNamesOfModules) {
  EXPECT_THAT(names_of(skips()->layers()),
      IsSupersetOf({"embed", "blocks.1.0", "blocks.2.0", "norm", "head"}));
}

// Chained as they are, the graph goes on from one layer to the next.
TEST(Segments, ComputeWhatTheWholeDoes) {
  Model whole = skips(), cut = skips();
  for (const bool training : {true, false}) {
    whole->train(training);
    cut->train(training);
    auto layers = cut->layers();
    torch::manual_seed(3);
    const Tensor expected = whole->forward(ids());
    torch::manual_seed(3);
    const Tensor computed = run_layers(layers, ids());
    EXPECT_TRUE(torch::equal(computed, expected)) << training;
    expected.square().sum().backward();
    computed.square().sum().backward();
    expect_equal(gradients_of(*cut), gradients_of(*whole));
  }
  expect_equal(cut->buffers(), whole->buffers());
}

TEST(Segments, ShareTensorsModesAndNames) {
  const Model model = skips();
  auto layers = model->layers();
  auto of_layers = named_state(layers).keys(), of_model = named_state(*model).keys();
  std::ranges::sort(of_layers);
  std::ranges::sort(of_model);
  EXPECT_EQ(of_layers, of_model);
  for (const auto& item : named_state(layers))
    EXPECT_TRUE(item.value().is_same(named_state(*model)[item.key()])) << item.key();
  model->named_modules()["norm"]->eval();  // as a frozen one is
  const Tensor before = model->named_buffers()["norm.running_mean"].clone();
  run_layers(layers, ids());
  EXPECT_TRUE(torch::equal(model->named_buffers()["norm.running_mean"], before));
}

// Head and embedding have one weight: the embedding's layer has it, under both names.
TEST(Segments, HandATiedWeightOn) {
  const Model model = skips();
  const auto layers = model->layers();
  EXPECT_THAT(layers["embed"].ptr()->named_parameters().keys(),
      IsSupersetOf({"embed.weight", "head.weight"}));
  EXPECT_THAT(layers["head"].ptr()->parameters(), IsEmpty());
}

SmallProgram& linear(SmallProgram& program, const std::string& from, const std::string& to) {
  return program.node(
      "torch.ops.aten.mul.Tensor", {{"self", value(from)}, {"other", {2.5}}}, to, to);
}

// Numbers of each kind on the way, and None.
TEST(Segments, HandNumbersOn) {
  SmallProgram program;
  program.input("x", {2, 4})
      .node("torch.ops.aten.sym_size.int", {{"self", value("x")}, {"dim", {1L}}}, "size")
      .number("size")
      .node("_operator.sub", {{"", value("size")}, {"", {6L}}}, "negative")
      .number("negative")
      .node("_operator.truediv", {{"", value("size")}, {"", {8L}}}, "half")
      .number("half")
      .node("_operator.lt", {{"", value("size")}, {"", {3L}}}, "truth")
      .number("truth");
  linear(program, "x", "a");
  linear(program, "a", "b");
  program
      .node("torch.ops.aten.mul.Tensor", {{"self", value("b")}, {"other", value("negative")}}, "c",
          "c")
      .node("torch.ops.aten.add.Tensor", {{"self", value("c")}, {"other", value("half")}}, "d", "d")
      .node("torch.ops.aten.sum.dim_IntList",
          {{"self", value("d")}, {"dim", {ExportedList{{1L}}}}, {"keepdim", value("truth")}}, "e",
          "e")
      .output("e");
  auto layers = program.layers();
  EXPECT_THAT(names_of(layers), ElementsAre("a", "b", "c", "d", "e"));
  const Tensor x = torch::arange(8.0F).view({2, 4});
  const Tensor expected = (x * 2.5 * 2.5 * -2 + 0.5).sum(1);
  EXPECT_TRUE(torch::allclose(run_layers(layers, x), expected));
}

// A view in the second module is written to in the third one: until then nothing may be cut.
TEST(Segments, KeepMemoryThatIsWrittenTo) {
  SmallProgram program;
  program.input("x", {2, 4});
  linear(program, "x", "a");
  program.node("torch.ops.aten.t.default", {{"self", value("a")}}, "view", "view");
  program.node("torch.ops.aten.relu_.default", {{"self", value("view")}}, "changed", "changed");
  linear(program, "a", "b").output("b");
  EXPECT_THAT(names_of(program.layers()), ElementsAre("a", "b"));
}

TEST(Segments, KeepABufferThatChanges) {
  SmallProgram program;
  program.input("x", {4}).held(ExportedInputSpec::Kind::kBuffer, "count", "count", 4);
  program.node(
      "torch.ops.aten.mul.Tensor", {{"self", value("x")}, {"other", value("count")}}, "a", "a");
  linear(program, "a", "b");
  program.node("torch.ops.aten.add_.Tensor", {{"self", value("count")}, {"other", value("b")}},
      "more", "more");
  linear(program, "b", "c").output("c");
  EXPECT_THAT(names_of(program.layers()), ElementsAre("a", "c"));
}

// Between two ends of few bytes there is a place where twice as much is alive.
TEST(Segments, AreCutWhereFewBytesAreAlive) {
  SmallProgram program;
  program.input("x", {2, 4});
  linear(program, "x", "a");
  linear(program, "a", "wide");
  program.node(
      "torch.ops.aten.add.Tensor", {{"self", value("wide")}, {"other", value("a")}}, "sum", "sum");
  linear(program, "sum", "b").output("b");
  for (const char* name : {"a", "wide", "sum", "b"})
    program.graph().tensors[name].shape = {{2, ""}, {4, ""}};
  EXPECT_THAT(names_of(program.layers()), ElementsAre("a", "wide", "b"));
}

}  // namespace
}  // namespace lockstep::nn
