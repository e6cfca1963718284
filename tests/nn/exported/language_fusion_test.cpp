// Fused steps of transformers: which nodes are one, and that they compute what the nodes do.

#include "lockstep/nn/exported/language_fusion.h"

#include <algorithm>
#include <array>
#include <gtest/gtest.h>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "tests/nn/exported/nodes_program.h"
#include <ATen/ops/ones.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/silu.h>
#include <ATen/ops/stack.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/function.h>
#include <torch/types.h>

#include "lockstep/nn/exported/exported_module.h"
#include "lockstep/nn/exported/graph_parts.h"
#include "lockstep/nn/exported/language_kernels.h"
#include "lockstep/nn/kernels.h"

namespace lockstep::nn {
namespace {

using lockstep::testing::expect_as_nodes;
using lockstep::testing::expect_bits;
using lockstep::testing::expect_close;
using lockstep::testing::Fused;
using lockstep::testing::kReal;
using lockstep::testing::learned;
using lockstep::testing::Named;
using lockstep::testing::Nodes;
using lockstep::testing::value;
using lockstep::testing::whole_numbers;
using torch::Tensor;
using Tensors = std::vector<Tensor>;

/// The ways in which a program of RMSNorm departs from transformers'.
struct NormForm {
  double exponent = 2, alpha = 1;
  std::int64_t dimension = -1;
  ElementType type = kReal;
  bool has_casts = true, casts_all = true, is_weight_first = true;
};

Nodes norm_program(const NormForm& form = {}) {
  const auto cast = [&](Nodes& nodes, const std::string& result, const std::string& of) {
    nodes.node("", "_assert_tensor_metadata.default", {{"a", value(of)}, {"dtype", {form.type}}});
    nodes.node(result, "to.dtype", {{"self", value(of)}, {"dtype", {form.type}}});
  };
  Nodes nodes;
  nodes.input("x", {2, 3, 8}).weight("w", 8);
  if (form.has_casts) cast(nodes, "f", "x");
  const std::string f = form.has_casts ? "f" : "x", x = form.casts_all ? f : "x";
  nodes.node("p", "pow.Tensor_Scalar", {{"self", value(f)}, {"exponent", {form.exponent}}});
  nodes.node("m", "mean.dim",
      {{"self", value("p")}, {"dim", whole_numbers({form.dimension})}, {"keepdim", {true}}});
  nodes.node("s", "add.Tensor", {{"self", value("m")}, {"other", {1e-5}}, {"alpha", {form.alpha}}});
  nodes.one("r", "rsqrt.default", "s").two("n", "mul.Tensor", x, value("r"));
  if (form.has_casts && form.casts_all) cast(nodes, "t", "n");
  const std::string t = form.has_casts && form.casts_all ? "t" : "n";
  form.is_weight_first ? nodes.two("y", "mul.Tensor", "w", value(t))
                       : nodes.two("y", "mul.Tensor", t, value("w"));
  return nodes.output("y");
}

// The cast of the input belongs to the residual stream, too.
TEST(LanguageFusion, JoinsTheNodesOfRmsNorm) {
  EXPECT_EQ(norm_program().fused(), Fused{7});
  EXPECT_EQ(norm_program().output("f").fused(), Fused{7});
  EXPECT_EQ(norm_program({.has_casts = false}).fused(), Fused{6});
  EXPECT_EQ(norm_program({.casts_all = false}).fused(), Fused{7}) << "as T5 writes it";
  EXPECT_EQ(norm_program({.casts_all = false}).output("f").fused(), Fused());
  EXPECT_EQ(norm_program({.is_weight_first = false}).fused(), Fused{7});
}

TEST(LanguageFusion, LeavesAloneWhatIsNoRmsNorm) {
  EXPECT_EQ(norm_program({.exponent = 3}).fused(), Fused());
  EXPECT_EQ(norm_program({.alpha = 2}).fused(), Fused());
  EXPECT_EQ(norm_program({.dimension = 1}).fused(), Fused());
  EXPECT_EQ(norm_program({.type = ElementType::kFloat64}).fused(), Fused());
}

TEST(LanguageFusion, LeavesAloneANormWhoseValuesAreReadBetween) {
  for (const char* const inner : {"p", "m", "s", "r", "n", "t"}) {
    EXPECT_EQ(norm_program().output(inner).fused(), Fused()) << inner;
    EXPECT_EQ(norm_program().one("other", "neg.default", inner).output("other").fused(), Fused())
        << inner;
  }
}

TEST(LanguageFusion, LeavesAloneWhatIsWrittenInPlace) {
  Nodes nodes;
  nodes.input("x", {4}).input("y", {4}).one("a", "neg.default", "x").one("g", "silu.default", "a");
  nodes.one("b", "relu_.default", "a").two("r", "mul.Tensor", "g", value("b")).output("r");
  EXPECT_EQ(nodes.fused(), Fused()) << "silu comes before relu";
}

TEST(LanguageFusion, ComputesRmsNorm) {
  const Tensors x = {at::randn({2, 3, 8})};
  expect_as_nodes(norm_program(), norm_program().output("n"), x, "OwnRmsNorm");
  expect_as_nodes(norm_program({.has_casts = false}),
      norm_program({.has_casts = false}).output("n"), x, "OwnRmsNorm");
}

// The assertions about what is not there any more go, those about inputs stay.
TEST(LanguageFusion, KeepsAssertionsAboutInputs) {
  exported::GraphNeeds needs;
  Nodes nodes = norm_program();
  const auto parts = exported::parts_of(nodes.program().graph(), {"net"}, needs);
  ASSERT_EQ(parts.steps.size(), 3U);
  EXPECT_EQ(parts.steps[0].operation->schema().name(), "aten::_assert_tensor_metadata");
}

// A kernel does not make it.
TEST(LanguageFusion, LeavesAloneANormThatIsItsOwnWeight) {
  Nodes nodes;
  nodes.input("x", {2, 3, 8});
  nodes.node("p", "pow.Tensor_Scalar", {{"self", value("x")}, {"exponent", {2L}}});
  nodes.node(
      "m", "mean.dim", {{"self", value("p")}, {"dim", whole_numbers({-1})}, {"keepdim", {true}}});
  nodes.two("s", "add.Tensor", "m", {1e-5}).one("r", "rsqrt.default", "s");
  nodes.two("n", "mul.Tensor", "x", value("r")).two("y", "mul.Tensor", "n", value("n"));
  EXPECT_EQ(nodes.output("y").fused(), Fused());
}

TEST(LanguageFusion, LeavesAWeightOfOtherFormToTheNodes) {
  const auto program = [](bool is_fused) {
    Nodes result;
    result.input("x", {2, 3, 8}).input("w", {3, 8});
    result.node("p", "pow.Tensor_Scalar", {{"self", value("x")}, {"exponent", {2L}}});
    result.node(
        "m", "mean.dim", {{"self", value("p")}, {"dim", whole_numbers({-1})}, {"keepdim", {true}}});
    result.two("s", "add.Tensor", "m", {1e-5}).one("r", "rsqrt.default", "s");
    result.two("n", "mul.Tensor", "x", value("r")).two("y", "mul.Tensor", "w", value("n"));
    result.output("y");
    if (!is_fused) result.output("n");
    return result;
  };
  const Tensors inputs = {at::randn({2, 3, 8}), at::randn({3, 8})};
  expect_bits(learned(program(true), inputs, Kernels::kOwn),
      learned(program(false), inputs, Kernels::kLibTorch));
}

// torch.nn.RMSNorm is one operator.
TEST(LanguageFusion, ComputesTorchsRmsNormByOurKernel) {
  Nodes nodes;
  nodes.input("x", {2, 3, 8}).weight("w", 8);
  nodes.node("y", "rms_norm.default",
      {{"input", value("x")}, {"normalized_shape", whole_numbers({8})}, {"weight", value("w")},
          {"eps", {1e-5}}});
  nodes.output("y");
  expect_as_nodes(nodes, nodes, {at::randn({2, 3, 8})}, "OwnRmsNorm");
}

Nodes swiglu_program(bool is_gate_first = true) {
  Nodes nodes;
  nodes.input("g", {4, 6}).input("u", {4, 6}).one("s", "silu.default", "g");
  is_gate_first ? nodes.two("y", "mul.Tensor", "s", value("u"))
                : nodes.two("y", "mul.Tensor", "u", value("s"));
  return nodes.output("y");
}

TEST(LanguageFusion, ComputesSwiglu) {
  const Tensors inputs = {at::randn({4, 6}), at::randn({4, 6})};
  for (const bool is_gate_first : {true, false}) {
    EXPECT_EQ(swiglu_program(is_gate_first).fused(), Fused{2});
    expect_as_nodes(swiglu_program(is_gate_first), swiglu_program(is_gate_first).output("s"),
        inputs, "OwnSwiglu");
  }
  EXPECT_EQ(swiglu_program().output("s").fused(), Fused());
  const auto of = [&](const Nodes& nodes, Kernels kernels) {
    return learned(nodes, inputs, kernels, nullptr, torch::kBFloat16);
  };
  expect_close(of(swiglu_program(), Kernels::kOwn),
      of(swiglu_program().output("s"), Kernels::kLibTorch), 0.02);
}

TEST(LanguageFusion, LeavesANumberTimesSiluAlone) {
  Nodes nodes;
  nodes.input("g", {4}).one("s", "silu.default", "g").two("y", "mul.Tensor", "s", {2.0});
  EXPECT_EQ(nodes.output("y").fused(), Fused());
}

/// The ways in which a program of rotary positions departs from transformers'.
struct RotaryForm {
  std::int64_t half = 4, second = 4;
  bool has_equal_halves = true, negates_second = true;
};

constexpr std::int64_t kEnd = std::numeric_limits<std::int64_t>::max();

// Of heads [2, 3, 5, 8] and angles [1, 5, 4].
Nodes rotary_program(const RotaryForm& form = {}) {
  Nodes nodes;
  nodes.input("q", {2, 3, 5, 8}).input("angles", {1, 5, 4}).input("others", {1, 5, 4});
  const ExportedList both = {value("angles"), value(form.has_equal_halves ? "angles" : "others")};
  nodes.node("all", "cat.default", {{"tensors", {both}}, {"dim", {-1L}}});
  for (const char* const function : {"cos", "sin"}) {
    const std::string name = function;
    nodes.one(name + "0", name + ".default", "all")
        .two(name + "1", "mul.Tensor", name + "0", {1.0});
    nodes.node(name + "2", "to.dtype", {{"self", value(name + "1")}, {"dtype", {kReal}}});
    nodes.node(name, "unsqueeze.default", {{"self", value(name + "2")}, {"dim", {1L}}});
  }
  const auto slice = [&](const char* result, std::int64_t begin, std::int64_t end) {
    nodes.node(result, "slice.Tensor",
        {{"self", value("q")}, {"dim", {3L}}, {"start", {begin}}, {"end", {end}}});
  };
  nodes.two("straight", "mul.Tensor", "q", value("cos"));
  slice("first", 0, form.half);
  slice("second", form.second, kEnd);
  const std::string negated = form.negates_second ? "second" : "first";
  nodes.one("negated", "neg.default", negated);
  const ExportedList parts = {value("negated"), value(form.negates_second ? "first" : "second")};
  nodes.node("turned", "cat.default", {{"tensors", {parts}}, {"dim", {-1L}}});
  nodes.two("across", "mul.Tensor", "turned", value("sin"));
  return nodes.two("y", "add.Tensor", "straight", value("across")).output("y");
}

TEST(LanguageFusion, JoinsTheNodesOfRotaryPositions) {
  EXPECT_EQ(rotary_program().fused(), Fused{7});
  EXPECT_EQ(rotary_program({.has_equal_halves = false}).fused(), Fused());
  EXPECT_EQ(rotary_program({.negates_second = false}).fused(), Fused());
  EXPECT_EQ(rotary_program({.half = 3, .second = 4}).fused(), Fused());
  for (const char* const inner : {"straight", "first", "second", "negated", "turned", "across"})
    EXPECT_EQ(rotary_program().output(inner).fused(), Fused()) << inner;
}

Tensors heads_and_angles(std::int64_t sequences = 1) {
  const Tensor angles = at::randn({sequences, 5, 4});
  return {at::randn({2, 5, 3, 8}).transpose(1, 2), angles, angles};
}

// Angles that are wanted gradients are the nodes'.
TEST(LanguageFusion, ComputesRotaryPositions) {
  const Tensors inputs = heads_and_angles();
  const auto outcome = [&](const Nodes& nodes, Kernels kernels, torch::ScalarType type,
                           bool wants_angles, std::string* name) {
    const KernelScope scope(kernels);
    auto module = nodes.module();
    const Tensor heads = inputs[0].detach().to(type).requires_grad_();
    const Tensor angles = inputs[1].detach().clone().requires_grad_(wants_angles);
    const Tensor result = module->first_output({heads, angles, angles});
    *name = result.grad_fn()->next_edge(0).function->name() + result.grad_fn()->name();
    Tensors wanted = {heads};
    if (wants_angles) wanted.push_back(angles);
    Tensors all = torch::autograd::grad({(result * result.detach().cos()).sum()}, wanted);
    all.push_back(result);
    return all;
  };
  std::string name;
  for (const bool wants_angles : {false, true}) {
    const Tensors wanted = outcome(
        rotary_program().output("turned"), Kernels::kLibTorch, torch::kFloat, wants_angles, &name);
    expect_close(
        outcome(rotary_program(), Kernels::kOwn, torch::kFloat, wants_angles, &name), wanted);
    EXPECT_EQ(name.find("OwnRotary") == std::string::npos, wants_angles) << name;
    expect_bits(
        outcome(rotary_program(), Kernels::kLibTorch, torch::kFloat, wants_angles, &name), wanted);
    EXPECT_EQ(name.find("OwnRotary"), std::string::npos) << name;
  }
  // As under autocast: the products are of the longer type.
  const Tensors shorter = outcome(
      rotary_program().output("turned"), Kernels::kLibTorch, torch::kBFloat16, false, &name);
  EXPECT_EQ(shorter.back().scalar_type(), torch::kFloat);
  expect_close(
      outcome(rotary_program(), Kernels::kOwn, torch::kBFloat16, false, &name), shorter, 0.02);
  EXPECT_NE(name.find("OwnRotary"), std::string::npos) << name;
}

TEST(LanguageFusion, LeavesAnglesOfEachSequenceToTheNodes) {
  const auto each = [](bool is_fused) {
    Nodes nodes = rotary_program();
    for (const char* const angles : {"angles", "others"})
      nodes.program().graph().tensors[angles].shape[0].number = 2;
    if (!is_fused) nodes.output("turned");
    return nodes;
  };
  const Tensors inputs = heads_and_angles(2);
  EXPECT_EQ(each(true).fused(), Fused{7});
  const KernelScope scope(Kernels::kOwn);
  EXPECT_TRUE(
      each(true).module()->first_output(inputs).equal(each(false).module()->first_output(inputs)));
}

/// The ways in which a program of attention departs from transformers'.
struct AttentionForm {
  bool repeats = true, has_mask = true, is_causal = false, shares = false;
  std::int64_t begin = 0, inserted = 2;
  double dropout = 0;
};

// Of queries [2, 4, 6, 8], and keys and values [2, 2, 6, 8].
Nodes attention_program(const AttentionForm& form = {}) {
  Nodes nodes;
  nodes.input("q", {2, 4, 6, 8});
  const std::int64_t heads = form.repeats || form.shares ? 2 : 4;
  for (const char* const name : {"k", "v"}) nodes.input(name, {2, heads, 6, 8});
  nodes.input("mask", {2, 1, 6, 6}, ElementType::kBool);
  nodes.node("n", "sym_size.int", {{"self", value("k")}, {"dim", {0L}}});
  nodes.program().number("n");
  const auto repeated = [&](const std::string& name) {
    const auto shape = [](const std::vector<std::int64_t>& sizes) {
      ExportedList list = {value("n")};
      for (const std::int64_t size : sizes) list.push_back({size});
      return ExportedArgument{list};
    };
    nodes.node(name + "0", "slice.Tensor",
        {{"self", value(name)}, {"dim", {0L}}, {"start", {form.begin}}, {"end", {kEnd}}});
    nodes.node(
        name + "1", "unsqueeze.default", {{"self", value(name + "0")}, {"dim", {form.inserted}}});
    nodes.node(
        name + "2", "expand.default", {{"self", value(name + "1")}, {"size", shape({2, 2, 6, 8})}});
    nodes.node(
        name + "3", "reshape.default", {{"self", value(name + "2")}, {"shape", shape({4, 6, 8})}});
    return name + "3";
  };
  const std::string k = form.repeats ? repeated("k") : "k", v = form.repeats ? repeated("v") : "v";
  Named arguments = {{"query", value("q")}, {"key", value(k)}, {"value", value(v)},
      {"dropout_p", {form.dropout}}, {"is_causal", {form.is_causal}}, {"scale", {0.3}},
      {"enable_gqa", {form.shares}}};
  if (form.has_mask) arguments.push_back({"attn_mask", value("mask")});
  nodes.node("y", "scaled_dot_product_attention.default", arguments);
  return nodes.output("y");
}

Tensor causal_mask() { return at::ones({2, 1, 6, 6}, torch::kBool).tril(); }

Tensors heads_and_mask(const Tensor& mask, std::int64_t key_heads = 2) {
  const auto heads = [](std::int64_t count) { return at::randn({2, count, 6, 8}); };
  return {heads(4), heads(key_heads), heads(key_heads), mask};
}

TEST(LanguageFusion, JoinsAttentionWithAMaskAndRepeatedHeads) {
  EXPECT_EQ(attention_program().fused(), Fused{9});
  EXPECT_EQ(attention_program({.has_mask = false, .is_causal = true}).fused(), Fused{9});
  EXPECT_EQ(attention_program({.has_mask = false, .is_causal = true, .begin = 1}).fused(), Fused{7})
      << "parts of heads are repeated";
  EXPECT_EQ(attention_program({.repeats = false}).fused(), Fused{1});
  EXPECT_EQ(
      attention_program({.repeats = false, .has_mask = false, .is_causal = true}).fused(), Fused());
  EXPECT_EQ(attention_program({.has_mask = false, .inserted = 1}).fused(), Fused())
      << "others are repeated";
  EXPECT_EQ(attention_program({.has_mask = false}).output("k3").fused(), Fused());
}

void expect_attention_as_nodes(const AttentionForm& form, const Tensors& inputs, bool is_own) {
  std::string name;
  Nodes plain = attention_program(form);
  if (form.repeats) plain.output("k3");
  const Tensors wanted = learned(plain, inputs, Kernels::kLibTorch);
  expect_close(learned(attention_program(form), inputs, Kernels::kOwn, &name), wanted);
  EXPECT_EQ(name.find("OwnAttention") != std::string::npos, is_own) << name;
  expect_bits(learned(attention_program(form), inputs, Kernels::kLibTorch, &name), wanted);
  EXPECT_EQ(name.find("OwnAttention"), std::string::npos) << name;
  expect_close(learned(attention_program(form), inputs, Kernels::kOwn, nullptr, torch::kBFloat16),
      learned(plain, inputs, Kernels::kLibTorch, nullptr, torch::kBFloat16), 0.02);
}

TEST(LanguageFusion, ComputesAttentionThatIsCausalOrSeesAll) {
  torch::manual_seed(7);
  const Tensors shared = heads_and_mask(causal_mask());
  expect_attention_as_nodes({}, heads_and_mask(at::ones_like(shared[3])), true);
  expect_attention_as_nodes({.has_mask = false}, shared, true);
  expect_attention_as_nodes({}, shared, true);
  expect_attention_as_nodes({.has_mask = false, .is_causal = true}, shared, true);
  expect_attention_as_nodes({.repeats = false}, heads_and_mask(causal_mask(), 4), true);
  expect_attention_as_nodes({.repeats = false, .shares = true}, shared, true);
}

// Of repeated keys; their attention, too, is the kernel's.
TEST(LanguageFusion, LeavesOtherMasksToTheNodes) {
  torch::manual_seed(8);
  Tensor mask = causal_mask();
  mask[1][0][3][1].fill_(false);
  expect_attention_as_nodes({}, heads_and_mask(mask), true);
}

// It draws the same for each head as attention without a mask, of heads that are repeated.
TEST(LanguageFusion, DropsWeightsOfAttention) {
  torch::manual_seed(9);
  for (const bool is_causal : {true, false}) {
    const Tensor mask = is_causal ? causal_mask() : at::ones_like(causal_mask());
    const Tensors inputs = heads_and_mask(mask);
    const AttentionForm plain{.has_mask = false, .is_causal = is_causal, .dropout = 0.5};
    std::string name;
    expect_bits(learned(attention_program({.dropout = 0.5}), inputs, Kernels::kOwn, &name),
        learned(attention_program(plain).output("k3"), inputs, Kernels::kOwn));
    EXPECT_NE(name.find("OwnAttention"), std::string::npos) << name;
  }
}

TEST(LanguageFusion, FindsWhatAMaskLetsQueriesSee) {
  using exported::Seen;
  const KernelScope scope(Kernels::kOwn);
  const auto seen = [](const Tensor& mask) {
    const std::array<c10::IValue, 1> arguments = {mask};
    return static_cast<Seen>(exported::seen_through(arguments).toInt());
  };
  const auto is_causal = [&](const Tensor& mask) { return seen(mask) == Seen::kUpToItself; };
  const auto square = [](std::int64_t size) { return at::ones({size, size}, torch::kBool); };
  for (const Tensor& open : {square(1), square(5), at::ones({2, 1, 5, 4}, torch::kBool)})
    EXPECT_EQ(seen(open), Seen::kAll) << open.sizes();
  EXPECT_EQ(seen(square(5).fill_diagonal_(false)), Seen::kOther);
  EXPECT_TRUE(is_causal(square(5).tril()));
  EXPECT_TRUE(is_causal(square(5).triu().t())) << "in another order in memory";
  EXPECT_TRUE(is_causal(square(5).tril().expand({3, 2, 5, 5})));
  EXPECT_FALSE(is_causal(square(5).triu()));
  EXPECT_FALSE(is_causal(square(5).tril(1)));
  EXPECT_FALSE(is_causal(square(5).tril(-1)));
  EXPECT_FALSE(is_causal(at::ones({5, 4}, torch::kBool).tril()));
  EXPECT_FALSE(is_causal(square(5).tril().to(torch::kFloat)));
  EXPECT_FALSE(is_causal(at::stack({square(5).tril(), square(5)})));
  EXPECT_FALSE(is_causal(at::ones({0, 0}, torch::kBool)));
  const KernelScope others(Kernels::kLibTorch);
  EXPECT_FALSE(is_causal(square(5).tril())) << "nobody asks";
  EXPECT_EQ(seen(square(5)), Seen::kOther);
}

// One of a single place is spread over all, and is no causal mask of theirs.
TEST(LanguageFusion, LeavesAMaskThatIsSpreadToTheNodes) {
  Nodes nodes = attention_program({.repeats = false}),
        plain = attention_program({.repeats = false});
  for (Nodes* const each : {&nodes, &plain})
    for (const std::size_t dim : {2U, 3U})
      each->program().graph().tensors["mask"].shape[dim] = {1, ""};
  const Tensors inputs = heads_and_mask(at::ones({2, 1, 1, 1}, torch::kBool), 4);
  expect_bits(learned(nodes, inputs, Kernels::kOwn), learned(plain, inputs, Kernels::kLibTorch));
}

// Of a row alone, and of more sequences than there are.
TEST(LanguageFusion, RefusesMasksThatLibTorchRefuses) {
  for (const std::vector<std::int64_t>& sizes : {std::vector<std::int64_t>{6}, {2, 1, 6, 6}}) {
    Nodes nodes = attention_program({.repeats = false});
    auto& tensors = nodes.program().graph().tensors;
    tensors["mask"].shape.clear();
    for (const std::int64_t size : sizes) tensors["mask"].shape.push_back({size, ""});
    Tensors inputs = heads_and_mask(at::ones(sizes, torch::kBool), 4);
    for (std::size_t i = 0; i < 3; ++i) inputs[i] = inputs[i].narrow(0, 0, 1).clone();
    for (const char* const name : {"q", "k", "v"}) tensors[name].shape[0] = {1, ""};
    for (const Kernels who : {Kernels::kOwn, Kernels::kLibTorch})
      EXPECT_ANY_THROW(learned(nodes, inputs, who)) << at::IntArrayRef(sizes);
  }
}

// A mask is asked about once, in the first of the layers, and the answer travels with it.
TEST(LanguageFusion, AsksOnceAboutAMaskOfManyLayers) {
  Nodes nodes;
  nodes.input("x", {2, 4, 6, 8}).input("mask", {2, 1, 6, 6}, ElementType::kBool);
  std::string before = "x";
  for (const std::string layer : {"a", "b", "c"}) {
    nodes.in_module(layer).one(layer + "0", "sin.default", before);
    nodes.node(layer, "scaled_dot_product_attention.default",
        {{"query", value(before)}, {"key", value(layer + "0")}, {"value", value(before)},
            {"attn_mask", value("mask")}});
    before = layer;
  }
  nodes.output(before);
  exported::GraphNeeds needs;
  const auto parts = exported::parts_of(nodes.program().graph(), {"net"}, needs);
  EXPECT_EQ(std::ranges::count_if(
                parts.steps, [](const exported::Step& step) { return step.function != nullptr; }),
      1);

  const KernelScope scope(Kernels::kOwn);
  const Tensors inputs = {at::randn({2, 4, 6, 8}).requires_grad_(), causal_mask()};
  auto module = nodes.module();
  const Tensor whole = module->first_output(inputs);
  auto layers =
      module->layers({}, [](const Tensors& outputs, std::int64_t) { return outputs.front(); });
  EXPECT_EQ(layers.keys(), (std::vector<std::string>{"a", "b", "c"}));
  torch::nn::AnyValue passed(inputs);
  for (auto& layer : layers) passed = layer.value().any_forward(std::move(passed));
  const Tensor chained = passed.get<Tensor>();
  EXPECT_TRUE(chained.equal(whole));
  EXPECT_NE(chained.grad_fn()->name().find("OwnAttention"), std::string::npos);
}

/// The ways in which a program of packed attention departs from timm's.
struct PackedForm {
  std::vector<std::int64_t> order = {2, 0, 3, 1, 4};
  std::array<const char*, 3> parts = {"q", "k", "v"};
  std::int64_t dimension = 0;
  bool is_causal = false;
  double dropout = 0;
};

// Of one tensor [2, 6, 96]: 4 heads of 8.
Nodes packed_program(const PackedForm& form = {}) {
  Nodes nodes;
  nodes.input("x", {2, 6, 96});
  nodes.node(
      "shaped", "view.default", {{"self", value("x")}, {"size", whole_numbers({2, 6, 3, 4, 8})}});
  nodes.node("turned", "permute.default",
      {{"self", value("shaped")}, {"dims", whole_numbers(form.order)}});
  nodes.node("q", "unbind.int", {{"self", value("turned")}, {"dim", {form.dimension}}});
  const ExportedList parts = {value("q"), value("k"), value("v")};
  nodes.program().last_node().outputs = {ExportedArgument{parts}};
  for (const char* const part : {"k", "v"})
    nodes.program().graph().tensors[part] = nodes.program().graph().tensors["q"];
  nodes.node("y", "scaled_dot_product_attention.default",
      {{"query", value(form.parts[0])}, {"key", value(form.parts[1])},
          {"value", value(form.parts[2])}, {"dropout_p", {form.dropout}},
          {"is_causal", {form.is_causal}}});
  return nodes.output("y");
}

TEST(LanguageFusion, JoinsAttentionOfPartsOfOneTensor) {
  EXPECT_EQ(packed_program().fused(), Fused{4});
  EXPECT_EQ(packed_program({.order = {2, 0, 1, 3, 4}}).fused(), Fused());
  EXPECT_EQ(packed_program({.parts = {"q", "v", "k"}}).fused(), Fused());
  EXPECT_EQ(packed_program({.parts = {"q", "k", "k"}}).fused(), Fused());
  EXPECT_EQ(packed_program({.dimension = 1}).fused(), Fused());
  for (const char* const inner : {"shaped", "turned", "q", "k", "v"})
    EXPECT_EQ(packed_program().output(inner).fused(), Fused()) << inner;
}

TEST(LanguageFusion, ComputesAttentionOfPartsOfOneTensor) {
  torch::manual_seed(9);
  const Tensors x = {at::randn({2, 6, 96})};
  for (const bool is_causal : {false, true}) {
    const auto program = [=] { return packed_program({.is_causal = is_causal}); };
    expect_as_nodes(program(), program().output("v"), x, "OwnPackedAttention");
  }
  std::string name;
  learned(packed_program({.dropout = 0.5}), x, Kernels::kOwn, &name);
  EXPECT_EQ(name.find("OwnPackedAttention"), std::string::npos) << name;
}

/// The ways in which a program of layer scale departs from ConvNeXt's.
struct ScaleForm {
  bool is_of_maps = true, is_scale_first = false, is_residual_first = false, is_parameter = true,
       has_residual = true;
  double alpha = 1;
};

// Of maps [2, 8, 3, 5], or of vectors [2, 3, 8].
Nodes scale_program(const ScaleForm& form = {}) {
  Nodes nodes;
  const std::vector<std::int64_t> sizes =
      form.is_of_maps ? std::vector<std::int64_t>{2, 8, 3, 5} : std::vector<std::int64_t>{2, 3, 8};
  nodes.input("x", sizes).input("r", sizes).weight("w", 8);
  if (!form.is_parameter) nodes.one("made", "neg.default", "w");
  const std::string scale = form.is_parameter ? "w" : "made";
  if (form.is_of_maps)
    nodes.node(
        "spread", "view.default", {{"self", value(scale)}, {"size", whole_numbers({1, -1, 1, 1})}});
  const std::string spread = form.is_of_maps ? "spread" : scale;
  form.is_scale_first ? nodes.two("scaled", "mul.Tensor", spread, value("x"))
                      : nodes.two("scaled", "mul.Tensor", "x", value(spread));
  const std::string residual = form.has_residual ? "r" : "scaled";
  const std::string one = form.is_residual_first ? residual : "scaled";
  nodes.node("y", "add.Tensor",
      {{"self", value(one)}, {"other", value(form.is_residual_first ? "scaled" : residual)},
          {"alpha", {form.alpha}}});
  return nodes.output("y");
}

TEST(LanguageFusion, JoinsLayerScaleAndTheResidual) {
  for (const bool is_scale_first : {false, true}) {
    for (const bool is_residual_first : {false, true}) {
      const auto fused = [=](bool is_of_maps) {
        return scale_program({.is_of_maps = is_of_maps,
                                 .is_scale_first = is_scale_first,
                                 .is_residual_first = is_residual_first})
            .fused();
      };
      EXPECT_EQ(fused(true), Fused{3});
      EXPECT_EQ(fused(false), Fused{2});
    }
  }
  EXPECT_EQ(scale_program({.alpha = 2}).fused(), Fused());
  EXPECT_EQ(scale_program({.is_parameter = false}).fused(), Fused());
  EXPECT_EQ(scale_program().output("scaled").fused(), Fused());
  EXPECT_EQ(scale_program({.has_residual = false}).fused(), Fused());
}

TEST(LanguageFusion, ComputesLayerScaleAndTheResidual) {
  torch::manual_seed(10);
  const auto maps = [] {
    return at::randn({2, 8, 3, 5}).contiguous(at::MemoryFormat::ChannelsLast);
  };
  expect_as_nodes(
      scale_program(), scale_program().output("scaled"), {maps(), maps()}, "OwnLayerScale");
  const ScaleForm vectors{.is_of_maps = false};
  expect_as_nodes(scale_program(vectors), scale_program(vectors).output("scaled"),
      {at::randn({2, 3, 8}), at::randn({2, 3, 8})}, "OwnLayerScale");
  // Other orders in memory, and a residual that is spread, are the nodes'.
  const Tensors others[] = {
      {at::randn({2, 8, 3, 5}), at::randn({2, 8, 3, 5})}, {maps(), at::randn({2, 8, 1, 1})}};
  for (const Tensors& inputs : others) {
    Nodes fused = scale_program(), plain = scale_program().output("scaled");
    for (Nodes* const each : {&fused, &plain})
      for (const std::size_t dim : {2U, 3U})
        each->program().graph().tensors["r"].shape[dim] = {inputs[1].sizes()[dim], ""};
    expect_bits(learned(fused, inputs, Kernels::kOwn), learned(plain, inputs, Kernels::kLibTorch));
  }
}

// A value that only the fused nodes read is there for them, too, if our kernels do not compute.
TEST(LanguageFusion, ComputesByTheNodesWhereKernelsCannot) {
  Nodes nodes;
  nodes.input("x", {4, 6}).one("g", "neg.default", "x").one("s", "silu.default", "g");
  nodes.one("u", "sin.default", "x").two("y", "mul.Tensor", "s", value("u")).output("y");
  EXPECT_EQ(nodes.fused(), Fused{2});
  const KernelScope scope(Kernels::kOwn);
  const Tensor x = at::randn({6, 4}).t();
  EXPECT_TRUE(nodes.module()->first_output({x}).equal(at::silu(-x) * x.sin()))
      << "not in one piece";
}

}  // namespace
}  // namespace lockstep::nn
