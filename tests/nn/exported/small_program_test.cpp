// The executor's rules, on programs written node by node.

#include "tests/nn/exported/small_program.h"

#include <gtest/gtest.h>
#include <string>
#include <vector>

#include "tests/support/message_of.h"
#include <ATen/CPUGeneratorImpl.h>
#include <ATen/core/grad_mode.h>
#include <torch/types.h>

#include "lockstep/core/error.h"
#include "lockstep/core/text.h"
#include "lockstep/nn/exported/exported_module.h"
#include "lockstep/nn/exported/graph_parts.h"

namespace lockstep::nn {
namespace {

using lockstep::testing::expect_parts;
using lockstep::testing::message_of;
using lockstep::testing::SmallProgram;
using lockstep::testing::value;
using torch::Tensor;
using Kind = ExportedInputSpec::Kind;

Tensor result_of(const SmallProgram& program, const std::vector<Tensor>& inputs) {
  return program.module()->first_output(inputs);
}

std::string refusal_of(const SmallProgram& program) {
  return message_of<DataError>([&] { program.module(); });
}

/// A program of one input `x` [2, 4] and one node that makes `y`.
SmallProgram of_node(const std::string& target,
    const std::vector<std::pair<std::string, ExportedArgument>>& arguments,
    const std::string& module = "") {
  SmallProgram program;
  program.input("x", {2, 4}).node(target, arguments, "y", module).output("y");
  return program;
}

Tensor numbers() { return torch::arange(8.0F).view({2, 4}); }

TEST(ExportedArguments, TakeDefaultsOfTheSchema) {
  const auto program = of_node("torch.ops.aten.softmax.int", {{"self", value("x")}, {"dim", {1L}}});
  EXPECT_TRUE(torch::equal(result_of(program, {numbers()}), numbers().softmax(1)));
}

TEST(ExportedArguments, MakeTensorsOfNumbers) {
  const auto program =
      of_node("torch.ops.aten.mul.Tensor", {{"self", value("x")}, {"other", {2.5}}});
  const auto half = numbers().to(torch::kHalf);
  const Tensor result = result_of(program, {half});
  EXPECT_EQ(result.scalar_type(), torch::kHalf) << "a number must not promote";
  EXPECT_TRUE(torch::equal(result, half * 2.5));
}

TEST(ExportedArguments, MakeTensorsOfSizes) {
  SmallProgram program;
  program.input("x", {2, 4})
      .node("torch.ops.aten.sym_size.int", {{"self", value("x")}, {"dim", {1L}}}, "s")
      .number("s")
      .node("torch.ops.aten.mul.Tensor", {{"self", value("x")}, {"other", value("s")}}, "y")
      .output("y");
  EXPECT_TRUE(torch::equal(result_of(program, {numbers()}), numbers() * 4));
}

TEST(ExportedArguments, TakeOneNumberForAListOfFixedSize) {
  SmallProgram program;
  program.input("x", {1, 1, 4, 4})
      .node("torch.ops.aten.max_pool2d.default", {{"self", value("x")}, {"kernel_size", {2L}}}, "y")
      .output("y");
  const auto images = torch::arange(16.0F).view({1, 1, 4, 4});
  EXPECT_TRUE(torch::equal(result_of(program, {images}), torch::max_pool2d(images, 2)));
}

TEST(ExportedArguments, TakeListsOfValuesNumbersAndNone) {
  SmallProgram program;
  program.input("x", {2, 4})
      .node("torch.ops.aten.sym_size.int", {{"self", value("x")}, {"dim", {0L}}}, "s")
      .number("s")
      .node("torch.ops.aten.view.default",
          {{"self", value("x")}, {"size", {ExportedList{value("s"), {2L}, {-1L}}}}}, "v")
      .node("torch.ops.aten.ones.default",
          {{"size", {ExportedList{{1L}}}}, {"dtype", {ElementType::kInt64}}}, "i")
      .node("torch.ops.aten.index.Tensor",
          {{"self", value("v")}, {"indices", {ExportedList{{}, value("i")}}}}, "y")
      .output("y");
  const auto one = torch::ones({1}, torch::kLong);
  EXPECT_TRUE(torch::equal(result_of(program, {numbers()}),
      numbers().view({2, 2, -1}).index({torch::indexing::Slice(), one})));
}

TEST(ExportedArguments, ViewsWhatPythonCouldView) {
  const auto program = of_node(
      "torch.ops.aten.view.default", {{"self", value("x")}, {"size", {ExportedList{{8L}}}}});
  const auto strided = numbers().t().contiguous().t();
  EXPECT_TRUE(torch::equal(result_of(program, {strided}), numbers().flatten()));
}

// Of what lies in memory otherwise than Python's, a view would be a copy, and the result be lost.
TEST(ExportedMemory, IsSharedByAViewThatIsWrittenLater) {
  for (const std::string name : {"view", "reshape"}) {
    SmallProgram program;
    program.input("x", {2, 4})
        .node("torch.ops.aten.neg.default", {{"self", value("x")}}, "y")
        .node("torch.ops.aten." + name + ".default",
            {{"self", value("y")}, {name == "view" ? "size" : "shape", {ExportedList{{8L}}}}}, "v")
        .node("torch.ops.aten.add_.Tensor", {{"self", value("v")}, {"other", {1L}}}, "w")
        .output("y");
    const auto strided = numbers().t().contiguous().t();
    EXPECT_TRUE(torch::equal(result_of(program, {strided}), 1 - numbers())) << name;
    EXPECT_FALSE(program.module()->changes_input(0)) << name;
  }
}

TEST(ExportedMemory, OfAnInputIsChangedThroughAView) {
  SmallProgram program;
  program.input("x", {2, 4})
      .input("other", {2, 4})
      .node("torch.ops.aten.select.int", {{"self", value("x")}, {"dim", {0L}}, {"index", {1L}}},
          "row")
      .node("torch.ops.aten.mul_.Tensor", {{"self", value("row")}, {"other", {2L}}}, "twice")
      .node("torch.ops.aten.add.Tensor", {{"self", value("twice")}, {"other", value("other")}}, "y")
      .output("y");
  const auto module = program.module();
  EXPECT_TRUE(module->changes_input(0));
  EXPECT_FALSE(module->changes_input(1));
}

// A graph within the graph may hand on what it takes, and write into it.
TEST(ExportedMemory, IsFollowedThroughRegions) {
  for (const auto& [name, changes] : {std::pair{"neg", false}, {"neg_", true}, {"alias", true}}) {
    SmallProgram inner;
    inner.input("a", {2, 4})
        .node(concat("torch.ops.aten.", name, ".default"), {{"self", value("a")}}, "b")
        .output("b");
    SmallProgram program;
    const auto graph = std::make_shared<const ExportedGraph>(inner.graph());
    program.input("x", {2, 4})
        .node("torch.ops.higher_order.wrap_with_set_grad_enabled",
            {{"enable_grad", {false}}, {"wrapped", {ExportedSubgraph{"inner", graph}}},
                {"x", value("x")}},
            "y")
        .node("torch.ops.aten.relu_.default", {{"self", value("y")}}, "z")
        .output("z");
    EXPECT_EQ(program.module()->changes_input(0), changes) << name;
  }
}

TEST(ExportedArguments, GiveOneListsItemsTheirNames) {
  SmallProgram program;
  program.input("x", {2, 4})
      .node("torch.ops.aten.split.Tensor", {{"self", value("x")}, {"split_size", {1L}}}, "unused");
  program.last_node().outputs = {{ExportedList{value("a"), value("b")}}};
  program.graph().tensors["b"] = {};
  program.output("b");
  EXPECT_TRUE(torch::equal(result_of(program, {numbers()}), numbers().slice(0, 1)));

  program.graph().nodes[0].inputs[1].argument = {2L};
  expect_parts(message_of<c10::Error>([&] { result_of(program, {numbers()}); }),
      {"a list of 1 tensors, but the program was exported with 2"});
}

TEST(ExportedArguments, AreRefusedWithNodeAndLine) {
  const std::string node = "net.pt2: program \"model\": node \"y\" (";
  const std::string line = ") of net.py:7, in forward: the line of y: ";
  const std::vector<std::pair<SmallProgram, std::string>> cases = {
      {of_node("torch.ops.aten.no_such.default", {}), "LibTorch has no such operator; export"},
      {of_node("torch.ops.mine.op.default", {}), "no such operator; load the library"},
      {of_node("_operator.getattr", {}), "neither an operator nor arithmetic"},
      {of_node("torch.ops.aten.relu.default", {{"input", value("x")}}), "no argument \"input\""},
      {of_node("torch.ops.aten.relu.default", {{"self", value("x")}, {"self", value("x")}}),
          "the argument \"self\" is given twice"},
      {of_node("torch.ops.aten.relu.default", {}), "its argument self is missing"},
      {of_node("torch.ops.aten.relu.default", {{"self", value("z")}}),
          "nothing has made the value \"z\""},
      {of_node("torch.ops.aten.relu.default", {{"self", {}}}),
          "its argument self is None, but the operator takes Tensor"},
      {of_node("torch.ops.aten.softmax.int", {{"self", value("x")}, {"dim", {0.5}}}),
          "its argument dim is 0.5, but the operator takes int"},
      {of_node("torch.ops.aten.cat.default",
           {{"tensors", {ExportedList{value("x"), {std::string("a")}}}}}),
          "its argument tensors has the item \"a\""},
      {of_node("_operator.add", {{"a", {1L}}}), "it takes 2 arguments, not 1"},
      {of_node("torch.ops.higher_order.while_loop", {}), "higher-order operators of this kind"},
      {of_node("torch.ops.aten.zeros.default",
           {{"size", {ExportedList{{1L}}}}, {"device", {ExportedDevice{"meta"}}}}),
          "its argument device is \"meta\""},
      {of_node("torch.ops.aten.zeros.default",
           {{"size", {ExportedList{{1L}}}}, {"layout", {ExportedLayout{"sparse_coo"}}}}),
          "its argument layout is \"sparse_coo\""},
  };
  for (const auto& [program, why] : cases) expect_parts(refusal_of(program), {node, line, why});
}

TEST(ExportedArguments, OutputsFitTheSchema) {
  auto program = of_node("torch.ops.aten.relu.default", {{"self", value("x")}});
  program.last_node().outputs.push_back(value("more"));
  expect_parts(refusal_of(program), {"it has 2 outputs, but the operator returns 1"});
  program.last_node().outputs = {value("x")};
  expect_parts(refusal_of(program), {"a second value has the name \"x\""});
}

TEST(ExportedRun, SaysWhereItFails) {
  const auto program =
      of_node("torch.ops.aten.mm.default", {{"self", value("x")}, {"mat2", value("x")}});
  expect_parts(message_of<c10::Error>([&] { result_of(program, {numbers()}); }),
      {"mat1 and mat2", "in node \"y\" (\"torch.ops.aten.mm.default\") of net.py:7, in forward"});
}

/// A convolution of x [2, 3, 4, 4] by a weight [2, 3, 2, 2].
SmallProgram convolution() {
  SmallProgram program;
  program.input("x", {2, 3, 4, 4})
      .held(Kind::kParameter, "weight", "w", {2, 3, 2, 2})
      .held(Kind::kParameter, "shift", "shift", {2, 3, 4, 4})
      .node("torch.ops.aten.add.Tensor", {{"self", value("x")}, {"other", value("shift")}}, "a")
      .node("torch.ops.aten.conv2d.default", {{"input", value("a")}, {"weight", value("w")}}, "y");
  return program;
}

bool is_channels_last(const Tensor& tensor) {
  return tensor.is_contiguous(at::MemoryFormat::ChannelsLast);
}

TEST(ExportedKernels, LieChannelsLastWhenAsked) {
  auto program = convolution();
  auto module = program.output("y").module();
  const auto images = torch::randn({2, 3, 4, 4});
  const auto wanted = module->first_output({images});
  EXPECT_TRUE(wanted.is_contiguous()) << "as Python's";
  module->lay_out_kernels();
  const auto parameters = module->named_parameters();
  EXPECT_TRUE(is_channels_last(parameters["weight"]));
  EXPECT_FALSE(is_channels_last(parameters["shift"])) << "no weight of a convolution";
  const auto result = module->first_output({images});
  EXPECT_TRUE(is_channels_last(result));
  EXPECT_TRUE(torch::allclose(result, wanted));
  EXPECT_TRUE(is_channels_last(module->clone()->named_parameters()["weight"]));
}

TEST(ExportedKernels, StayWherePythonReadsStrides) {
  auto program = convolution();
  program.node("torch.ops.aten.as_strided.default",
      {{"self", value("y")}, {"size", {ExportedList{{1L}}}}, {"stride", {ExportedList{{1L}}}}},
      "z");
  auto module = program.output("z").module();
  module->lay_out_kernels();
  EXPECT_FALSE(is_channels_last(module->named_parameters()["weight"]));
}

TEST(ExportedRun, FreesValuesAtTheirLastUse) {
  SmallProgram program;
  program.input("x", {2, 4})
      .node("torch.ops.aten.relu.default", {{"self", value("x")}}, "a")
      .node("torch.ops.aten.add.Tensor", {{"self", value("a")}, {"other", value("a")}}, "b")
      .node("torch.ops.aten.neg.default", {{"self", value("b")}}, "y")
      .output("y");
  exported::GraphNeeds needs;
  const auto parts = exported::parts_of(program.graph(), {"net"}, needs);
  using enum exported::Operand::Kind;
  EXPECT_EQ(parts.steps[1].operands[0].kind, kValue);
  EXPECT_EQ(parts.steps[1].operands[1].kind, kLastUse);
  EXPECT_EQ(parts.steps[2].operands[0].kind, kLastUse);
  EXPECT_EQ(parts.outputs[0].kind, kValue);
  const at::NoGradGuard no_gradients;
  EXPECT_TRUE(torch::equal(result_of(program, {numbers()}), -2 * numbers()));
}

TEST(ExportedRun, FollowsTheModulesDevice) {
  auto program = of_node("torch.ops.aten.zeros.default",
      {{"size", {ExportedList{{1L}}}}, {"device", {ExportedDevice{"cuda:3"}}},
          {"pin_memory", {false}}});
  EXPECT_TRUE(result_of(program, {numbers()}).is_cpu());
}

TEST(ExportedRun, ChecksWhatPythonAsserted) {
  SmallProgram program;
  program.input("x", {2, 4})
      .node("torch.ops.aten.sym_size.int", {{"self", value("x")}, {"dim", {0L}}}, "s")
      .number("s")
      .node("_operator.ge", {{"a", value("s")}, {"b", {3L}}}, "holds")
      .number("holds")
      .node("torch.ops.aten._assert_scalar.default",
          {{"self", value("holds")}, {"assert_msg", {std::string("at least 3")}}}, "")
      .output("x");
  expect_parts(
      message_of<c10::Error>([&] { result_of(program, {numbers()}); }), {"at least 3", "net.py:7"});

  const auto typed = [](ElementType type) {
    auto asserted = of_node("torch.ops.aten._assert_tensor_metadata.default",
        {{"a", value("x")}, {"dtype", {type}}, {"device", {ExportedDevice{"cuda:0"}}}});
    asserted.last_node().outputs.clear();
    asserted.program().outputs[0].value = asserted.graph().outputs[0] = value("x");
    return asserted;
  };
  const auto bf16 = numbers().to(torch::kBFloat16);  // as autocast makes it
  EXPECT_TRUE(torch::equal(result_of(typed(ElementType::kFloat32), {bf16}), bf16));
  EXPECT_THROW(result_of(typed(ElementType::kInt64), {numbers()}), c10::Error);
}

TEST(ExportedRun, ComputesTheBranchOfACondition) {
  const auto branch = [](const char* target) {
    SmallProgram program;
    program.input("a", {2, 4}).node(target, {{"self", value("a")}}, "r").output("r");
    return std::make_shared<const ExportedGraph>(program.graph());
  };
  SmallProgram program;
  program.input("x", {2, 4})
      .node("torch.ops.aten.sum.default", {{"self", value("x")}}, "sum")
      .node("torch.ops.aten.gt.Scalar", {{"self", value("sum")}, {"other", {0L}}}, "holds")
      .node("torch.ops.higher_order.cond",
          {{"", value("holds")},
              {"", {ExportedSubgraph{"t", branch("torch.ops.aten.neg.default")}}},
              {"", {ExportedSubgraph{"f", branch("torch.ops.aten.relu.default")}}},
              {"", {ExportedList{value("x")}}}},
          "y")
      .output("y");
  EXPECT_TRUE(torch::equal(result_of(program, {numbers()}), -numbers()));
  EXPECT_TRUE(torch::equal(result_of(program, {-numbers()}), torch::zeros({2, 4})));

  program.last_node().inputs.pop_back();
  expect_parts(refusal_of(program), {"a graph in it takes 1 values, not the 0 given"});
}

TEST(ExportedState, IsChangedByOutputsThatSaySo) {
  SmallProgram program;
  program.held(Kind::kBuffer, "part.sum", "b_sum", 4)
      .held(Kind::kBuffer, "norm.num_batches_tracked", "b_count", 4)
      .input("x", {2, 4})
      .node("torch.ops.aten.add.Tensor", {{"self", value("b_sum")}, {"other", {2L}}}, "sum")
      .node("torch.ops.aten.add.Tensor", {{"self", value("b_count")}, {"other", {1L}}}, "count")
      .node("torch.ops.aten.neg.default", {{"self", value("x")}}, "y")
      .returned(ExportedOutputSpec::Kind::kBufferMutation, "sum", "part.sum")
      .returned(ExportedOutputSpec::Kind::kBufferMutation, "count", "norm.num_batches_tracked")
      .returned(ExportedOutputSpec::Kind::kInputMutation, "y", "x")
      .output("y");
  auto module = program.module();
  const auto x = numbers();
  EXPECT_TRUE(torch::equal(module->first_output({x}), -numbers()));
  EXPECT_TRUE(torch::equal(x, -numbers()));
  module->eval();
  module->forward({x});
  const auto buffers = module->named_buffers();
  EXPECT_EQ(buffers["part.sum"][0].item<float>(), 5);
  EXPECT_EQ(buffers["norm.num_batches_tracked"][0].item<float>(), 2) << "counts in training only";

  program.program().outputs[0].target = "part.other";
  expect_parts(refusal_of(program), {"an output changes \"part.other\", which it lacks"});
}

TEST(ExportedState, ThatForwardChangesMustBeSaved) {
  const auto changing = [](Kind kind, bool persistent, const char* operation) {
    SmallProgram program;
    program.held(kind, "part.sum", "b_sum", 4, persistent)
        .input("x", {2, 4})
        .node(concat("torch.ops.aten.", operation, ".Tensor"),
            {{"self", value("b_sum")}, {"other", {2L}}}, "sum")
        .output("sum");
    return program;
  };
  for (const Kind kind : {Kind::kBuffer, Kind::kConstant}) {
    const auto module = changing(kind, false, "mul_").module();
    expect_parts(message_of<InvalidArgument>([&] { module->check_state(); }),
        {"net.pt2: forward changes \"part.sum\"", "register_buffer(..., persistent=True)"});
  }
  EXPECT_NO_THROW(changing(Kind::kBuffer, true, "mul_").module()->check_state());
  EXPECT_NO_THROW(changing(Kind::kBuffer, false, "mul").module()->check_state());
  auto decomposed = changing(Kind::kBuffer, false, "mul");
  decomposed.returned(ExportedOutputSpec::Kind::kBufferMutation, "sum", "part.sum");
  EXPECT_THROW(decomposed.module()->check_state(), InvalidArgument);
}

// As batch norms of run_decompositions() do.
TEST(ExportedState, IsOverwrittenBehindBackwardsBack) {
  SmallProgram program;
  program.held(Kind::kBuffer, "factor", "b_factor", 4)
      .input("x", {2, 4})
      .node("torch.ops.aten.mul.Tensor", {{"self", value("x")}, {"other", value("b_factor")}}, "y")
      .node("torch.ops.aten.add.Tensor", {{"self", value("b_factor")}, {"other", {2L}}}, "next")
      .returned(ExportedOutputSpec::Kind::kBufferMutation, "next", "factor")
      .output("y");
  auto module = program.module();
  const auto x = numbers().requires_grad_();
  module->first_output({x}).sum().backward();
  EXPECT_TRUE(torch::equal(x.grad(), torch::ones({2, 4}))) << "of the factor before";
  EXPECT_EQ(module->buffers()[0][0].item<float>(), 3);
}

TEST(ExportedState, OfDecomposedNormsIsNoRules) {
  auto program = of_node("torch.ops.aten._native_batch_norm_legit.no_stats",
      {{"input", value("x")}, {"weight", {}}, {"bias", {}}, {"training", {true}},
          {"momentum", {0.1}}, {"eps", {1e-5}}});
  program.last_node().outputs = {value("y"), value("mean"), value("deviation")};
  auto module = program.module();
  EXPECT_NO_THROW(module->forward({numbers()}));
  expect_parts(message_of<InvalidArgument>([&] { module->check_state(); }),
      {"a batch norm has been decomposed", "node \"y\"", "without run_decompositions()"});
}

TEST(ExportedState, MovesWhatIsNotRegistered) {
  SmallProgram program;
  program.held(Kind::kParameter, "weight", "p_weight", 4)
      .held(Kind::kBuffer, "scale", "b_scale", 4, /*persistent=*/false)
      .held(Kind::kConstant, "c", "c_c", 4)
      .node("torch.ops.aten.mul.Tensor", {{"self", value("p_weight")}, {"other", value("b_scale")}},
          "y")
      .node("torch.ops.aten.clone.default", {{"self", value("c_c")}}, "c")
      .output("y")
      .output("c");
  auto module = program.module();
  EXPECT_EQ(named_state(*module).keys(), std::vector<std::string>{"weight"});
  EXPECT_TRUE(module->parameters()[0].requires_grad());
  module->to(torch::kDouble);
  const auto outputs = module->forward({});
  EXPECT_EQ(outputs["y"].scalar_type(), torch::kDouble);
  EXPECT_EQ(outputs["c"].scalar_type(), torch::kFloat) << "Python makes constants anew";
}

TEST(ExportedModes, TurnFlagsOfOneProgram) {
  const auto dropout = [](bool train) {
    return of_node("torch.ops.aten.dropout.default",
        {{"input", value("x")}, {"p", {0.5}}, {"train", {train}}}, "drop");
  };
  for (const bool exported_in_training : {true, false}) {
    auto module = dropout(exported_in_training).module();
    const auto ones = torch::ones({2, 4});
    const auto is_dropped = [&] { return !torch::equal(module->first_output({ones}), ones); };
    torch::manual_seed(1);
    EXPECT_TRUE(is_dropped());
    module->named_modules()["drop"]->eval();
    EXPECT_FALSE(is_dropped()) << "each module has a mode";
    module->train();
    EXPECT_TRUE(is_dropped());
    module->eval();
    EXPECT_FALSE(is_dropped());
  }
}

TEST(ExportedModes, LeaveOffWhatWasOffInTraining) {
  auto program = of_node("torch.ops.aten.dropout.default",
      {{"input", value("x")}, {"p", {0.5}}, {"train", {false}}}, "off");
  program.node("torch.ops.aten.dropout.default",
      {{"input", value("y")}, {"p", {0.0}}, {"train", {true}}}, "z", "on");
  const auto ones = torch::ones({2, 4});
  EXPECT_TRUE(torch::equal(result_of(program, {ones}), ones));
}

TEST(ExportedModes, TurnAttentionsDropout) {
  SmallProgram program;
  program.input("x", {2, 4})
      .node("torch.ops.aten.scaled_dot_product_attention.default",
          {{"query", value("x")}, {"key", value("x")}, {"value", value("x")}, {"dropout_p", {0.5}}},
          "y")
      .output("y");
  auto module = program.module();
  const auto expected = torch::scaled_dot_product_attention(numbers(), numbers(), numbers());
  torch::manual_seed(1);
  EXPECT_FALSE(torch::equal(module->first_output({numbers()}), expected));
  module->eval();
  EXPECT_TRUE(torch::allclose(module->first_output({numbers()}), expected));
}

// As a batch norm that is frozen.
TEST(ExportedModes, LeaveAModuleInEvaluationInTheProgramOfTraining) {
  const auto program = [](const std::string& name, bool training) {
    SmallProgram made = of_node("torch.ops.aten.dropout.default",
        {{"input", value("x")}, {"p", {1.0}}, {"train", {training}}}, "drop");
    made.program().name = name;
    return made.program();
  };
  const ExportedArchive archive{.file = "net.pt2",
      .programs = {program("eval", false), program("train", true)},
      .memory = {}};
  ExportedModule module(std::make_shared<ExportedModuleImpl>(archive));
  EXPECT_TRUE(torch::equal(module->first_output({numbers()}), torch::zeros({2, 4})));
  module->named_modules()["drop"]->eval();
  EXPECT_TRUE(torch::equal(module->first_output({numbers()}), numbers()));
  module->eval();
  EXPECT_TRUE(torch::equal(module->first_output({numbers()}), numbers()));
}

TEST(ExportedModes, HaveOutputsThatFitEachOther) {
  const auto program = [](const std::string& name, const char* output, std::int64_t sizes) {
    SmallProgram made = of_node("torch.ops.aten.relu.default", {{"self", value("x")}});
    made.program().name = name;
    made.program().output_names = {output};
    made.graph().tensors["y"].shape.assign(static_cast<std::size_t>(sizes), {2, ""});
    return made.program();
  };
  const auto refusal = [&](const ExportedProgram& train, const ExportedProgram& eval) {
    const ExportedModule module(std::make_shared<ExportedModuleImpl>(
        ExportedArchive{.file = "net.pt2", .programs = {train, eval}, .memory = {}}));
    return message_of<InvalidArgument>([&] { module->check_outputs("loss"); });
  };
  expect_parts(refusal(program("train", "logits", 2), program("eval", "logits", 1)),
      {"net.pt2: the first output is [2, 2] of float32 in training, but [2] of float32 in"});
  expect_parts(refusal(program("train", "loss", 0), program("eval", "logits", 2)),
      {"the program of training returns the numbers loss, but that of evaluation none"});
  expect_parts(
      refusal(program("train", "loss", 0), program("eval", "mean", 0)), {"evaluation mean"});
}

TEST(ExportedModes, KeepBatchStatisticsWhereThereAreNoOthers) {
  const auto program = of_node("torch.ops.aten.batch_norm.default",
      {{"input", value("x")}, {"weight", {}}, {"bias", {}}, {"running_mean", {}},
          {"running_var", {}}, {"training", {true}}, {"momentum", {0.1}}, {"eps", {1e-5}},
          {"cudnn_enabled", {true}}});
  auto module = program.module();
  const auto in_training = module->first_output({numbers()});
  module->eval();
  EXPECT_TRUE(torch::equal(module->first_output({numbers()}), in_training));
}

// As Python's own function, which the exporter has taken apart.
TEST(ExportedModes, RefuseABatchNormOfOneValue) {
  SmallProgram program;
  program.input("x", {1, 4})
      .held(Kind::kBuffer, "mean", "mean", 4)
      .held(Kind::kBuffer, "var", "var", 4)
      .node("torch.ops.aten.batch_norm.default",
          {{"input", value("x")}, {"weight", {}}, {"bias", {}}, {"running_mean", value("mean")},
              {"running_var", value("var")}, {"training", {true}}, {"momentum", {0.1}},
              {"eps", {1e-5}}, {"cudnn_enabled", {true}}},
          "y")
      .output("y");
  auto module = program.module();
  expect_parts(message_of<InvalidArgument>([&] {
    module->forward({torch::ones({1, 4})});
  }),
      {"more than one value per channel in training", "[1, 4]", "node \"y\""});
  module->eval();
  EXPECT_TRUE(torch::isfinite(module->first_output({torch::ones({1, 4})})).all().item<bool>());
}

TEST(ExportedModes, RefuseEvaluationOfWhatDrawsByItself) {
  auto program = of_node(
      "torch.ops.aten.dropout.default", {{"input", value("x")}, {"p", {0.5}}, {"train", {true}}});
  program.node("torch.ops.aten.bernoulli.p", {{"self", value("y")}, {"p", {0.5}}}, "drawn");
  auto module = program.module();
  EXPECT_NO_THROW(module->forward({numbers()}));
  module->eval();
  expect_parts(message_of<InvalidArgument>([&] { module->forward({numbers()}); }),
      {"exported in training and draws random numbers", "node \"drawn\"", "package_pt2"});
}

TEST(ExportedInputs, HaveTheFormsOfTheProgram) {
  SmallProgram program;
  program.input("x", {4, 2}).input("mask", {4}).output("x");
  program.graph().tensors["mask"].type = ElementType::kInt64;
  program.graph().tensors["x"].shape[0] =
      program.graph().tensors["mask"].shape[0] = {std::nullopt, "s0"};
  program.program().ranges["s0"] = {3, 8};
  auto module = program.module();
  const auto mask = [](std::int64_t n) { return torch::ones({n}, torch::kLong); };
  const auto refusal = [&](const std::vector<Tensor>& inputs) {
    return message_of<InvalidArgument>([&] { module->forward(inputs); });
  };
  EXPECT_NO_THROW(module->forward({torch::ones({3, 2}, torch::kDouble), mask(3)}));
  expect_parts(refusal({torch::ones({3, 2})}),
      {"takes 2 tensors (x [s0, 2] of float32, mask [s0] of int64), not 1"});
  expect_parts(
      refusal({torch::ones({3, 2}), mask(4)}), {"the input mask is [4]", "s0 is one size"});
  expect_parts(refusal({torch::ones({9, 2}), mask(9)}), {"[9, 2]", "3 to 8"});
  expect_parts(refusal({torch::ones({3, 5}), mask(3)}),
      {"dynamic_shapes={\"x\": {1: torch.export.Dim(\"size\""});
  expect_parts(refusal({torch::ones({3, 2}), torch::ones({3})}), {"Float", "[s0] of int64"});
  expect_parts(refusal({torch::ones({3}), mask(3)}), {"[3] of Float", "[s0, 2]"});
  expect_parts(refusal({Tensor(), mask(3)}), {"x is undefined"});
}

}  // namespace
}  // namespace lockstep::nn
